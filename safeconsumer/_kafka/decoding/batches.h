/* What records.c, checksum.c and steps.c have from each other. */

#ifndef SAFECONSUMER_BATCHES_H
#define SAFECONSUMER_BATCHES_H

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#include <structmember.h>

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Nobody but these files needs what they share. */
#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif

/* The fields of a record as kafka-python's ConsumerRecord has them. */
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

/* Bytes: other threads may run while more than these are looked at. */
#define WORTH_LETTING_GO (64 * 1024)

/* records.c */

/* The class of the records that were read last: its fields stand in their places. */
extern PyTypeObject *record_class;

int open_buffer(PyObject *data, Py_ssize_t at, Py_buffer *view);
int put(PyObject *fields, int place, PyObject *value);
int put_same(PyObject *fields, int place, PyObject *value);
PyObject *tuple_in_tuple(Py_ssize_t size);
int is_plain_tuple(PyTypeObject *kind);

/* checksum.c */

extern const char crc32c_doc[];

void fill_tables(void);
uint32_t crc_of(const uint8_t *at, const uint8_t *end, int by_tables);
PyObject *crc32c(PyObject *module, PyObject *args);

/* steps.c */

extern PyType_Spec steps_spec;

int add_names(void);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#endif
