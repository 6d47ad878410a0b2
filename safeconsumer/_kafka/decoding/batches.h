/* Declarations that records.c, checksum.c and steps.c share. */

#ifndef SAFECONSUMER_BATCHES_H
#define SAFECONSUMER_BATCHES_H

#define PY_SSIZE_T_CLEAN
#include <pyconfig.h> /* defines Py_GIL_DISABLED */
#ifndef Py_GIL_DISABLED /* no stable interface without the GIL */
#define Py_LIMITED_API 0x030b0000
#endif
#include <Python.h>
#include <structmember.h>

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The declared names are visible only in these files. */
#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif

/* The fields of kafka-python's ConsumerRecord, in order. */
enum {
    TOPIC,
    PARTITION,
    LEADER_EPOCH,
    OFFSET,
    TIMESTAMP,
    TIMESTAMP_TYPE,
    KEY,
    VALUE,
    HEADERS,
    CHECKSUM,
    KEY_SIZE,
    VALUE_SIZE,
    HEADER_SIZE,
    FIELDS
};

/* Other threads may run while more bytes than this are read. */
#define RELEASE_LOCK_ABOVE (64 * 1024)

/*
 * An object is meant for one thread. If several threads use it anyway, one thread at a time
 * runs the code between these two macros, except where that code runs Python code or waits.
 * So a Python without the global interpreter lock behaves like one with it.
 */
#ifdef Py_GIL_DISABLED
#define BEGIN_ALONE(object) Py_BEGIN_CRITICAL_SECTION(object)
#define END_ALONE() Py_END_CRITICAL_SECTION()
#else
#define BEGIN_ALONE(object) {
#define END_ALONE() }
#endif

/* The names that a step of an iteration looks up, and the metadata of positions. */
enum {
    QUEUE,
    SETTLED,
    QUIET,
    POSITION,
    PAUSED,
    REVOKED,
    VALIDATED,
    MOVES,
    RESTORE_MOVE,
    ITS_OFFSET,
    ITS_EPOCH,
    NO_METADATA,
    NAMES
};

/*
 * The state of a module, of which each interpreter has one. The record class is that of
 * the first reader, whose field positions are known.
 */
typedef struct {
    PyObject *names[NAMES];
    _Atomic(PyTypeObject *) record_class;
} Module;

/* records.c */

int open_buffer(PyObject *data, Py_ssize_t at, Py_buffer *view);
int put(PyObject *fields, int place, PyObject *value);
int put_same(PyObject *fields, int place, PyObject *value);
PyObject *item_of(PyObject *list, Py_ssize_t place);
PyObject *tuple_in_tuple(Py_ssize_t size);
int is_plain_tuple(PyTypeObject *kind);

/* checksum.c */

extern const char crc32c_doc[];

void fill_tables(void);
uint32_t crc_of(const uint8_t *at, const uint8_t *end, int by_tables);
PyObject *crc32c(PyObject *module, PyObject *args);

/* steps.c */

extern PyType_Spec steps_spec;

int add_names(Module *own);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#endif
