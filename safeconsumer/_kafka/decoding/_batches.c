/*
 * Reads Kafka's batches of format 2: a header and its checksum, and the records, which are
 * checked as a whole and made, as a named tuple's type, out of any part of it. Yields
 * records in an iteration, and looks for holds before each.
 *
 * Nothing is read that lies outside of the buffer, whatever its bytes say. Records that
 * are not as a producer writes them are a ValueError, and such a header is None: then the
 * caller has another decoder, which knows the right error. Format: https://kafka.apache.org/documentation/#record.
 *
 * Only Python's stable interface is used, so that one build serves every version from
 * 3.11 on.
 */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#include <structmember.h>

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Instructions for CRC-32C: on x86-64 asked for when it runs, on ARM when it is built. */
#if defined(__x86_64__) && defined(__GNUC__)
#define CRC_OF_X86
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#define CRC_OF_ARM
#endif

/* The SHA-256 of this file, in hex, by which a stale library is told from this one. */
#ifndef SOURCE
#define SOURCE ""
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

typedef struct {
    int64_t size; /* bytes, without the field that has this number */
    int64_t timestamp_delta;
    int64_t offset_delta;
    const uint8_t *key;
    int64_t key_size; /* -1: there is none, here and below */
    const uint8_t *value;
    int64_t value_size;
    const uint8_t *headers;
    int64_t header_count;
} Record;

/*
 * Reads a signed number of 1 to 9 bytes. Returns where it ends, or NULL if it is cut off
 * or longer: then it is beyond 62 bits, and could leave 64 bits in a sum.
 */
static const uint8_t *
read_number(const uint8_t *at, const uint8_t *end, int64_t *number)
{
    uint64_t bits = 0;
    for (int shift = 0; at < end && shift < 63; shift += 7) {
        uint8_t byte = *at++;
        bits |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *number = (int64_t)(bits >> 1) ^ -(int64_t)(bits & 1);
            return at;
        }
    }
    return NULL;
}

/* Reads a number of bytes and skips as many; -1 are none. NULL if there are fewer. */
static const uint8_t *
read_bytes(const uint8_t *at, const uint8_t *end, const uint8_t **bytes, int64_t *size)
{
    at = read_number(at, end, size);
    if (at == NULL || *size < -1 || *size > end - at) {
        return NULL;
    }
    *bytes = at;
    return *size > 0 ? at + *size : at;
}

/*
 * Says whether Python's strict decoder would take it. Table 3-7 of the Unicode standard:
 * how many bytes follow the first one, and between which bounds the first of them is.
 */
static int
is_utf8(const uint8_t *at, const uint8_t *end)
{
    while (at < end) {
        uint8_t first = *at++, least = 0x80, most = 0xbf;
        int more;
        if (first < 0x80) {
            continue;
        }
        if (first < 0xc2 || first > 0xf4) {
            return 0;
        }
        more = first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
        if (first == 0xe0) {
            least = 0xa0;
        }
        else if (first == 0xed) {
            most = 0x9f; /* beyond are surrogates */
        }
        else if (first == 0xf0) {
            least = 0x90;
        }
        else if (first == 0xf4) {
            most = 0x8f;
        }
        if (end - at < more) {
            return 0;
        }
        for (; more > 0; more--, at++, least = 0x80, most = 0xbf) {
            if (*at < least || *at > most) {
                return 0;
            }
        }
    }
    return 1;
}

/* Returns where the record ends, or NULL if it is not what a producer writes. */
static const uint8_t *
read_record(const uint8_t *at, const uint8_t *end, Record *record)
{
    at = read_number(at, end, &record->size);
    if (at == NULL || record->size < 1 || record->size > end - at) {
        return NULL;
    }
    end = at + record->size;
    if (*at++ & 0x80) { /* attributes; there are none yet */
        return NULL;
    }
    at = read_number(at, end, &record->timestamp_delta);
    if (at == NULL) {
        return NULL;
    }
    at = read_number(at, end, &record->offset_delta);
    if (at == NULL) {
        return NULL;
    }
    at = read_bytes(at, end, &record->key, &record->key_size);
    if (at == NULL) {
        return NULL;
    }
    at = read_bytes(at, end, &record->value, &record->value_size);
    if (at == NULL) {
        return NULL;
    }
    at = read_number(at, end, &record->header_count);
    if (at == NULL || record->header_count < 0) {
        return NULL;
    }
    record->headers = at;
    for (int64_t left = record->header_count; left > 0; left--) {
        const uint8_t *bytes;
        int64_t size;
        at = read_bytes(at, end, &bytes, &size);
        if (at == NULL || size < 0 || !is_utf8(bytes, at)) {
            return NULL;
        }
        at = read_bytes(at, end, &bytes, &size);
        if (at == NULL) {
            return NULL;
        }
    }
    return at == end ? at : NULL;
}

/* Adds as machines do: a sum that leaves 64 bits, which no caller wants, turns over. */
static PyObject *
sum(long long one, int64_t other)
{
    return PyLong_FromLongLong((long long)((uint64_t)one + (uint64_t)other));
}

static PyObject *
bytes_or_none(const uint8_t *bytes, int64_t size)
{
    if (size < 0) {
        Py_INCREF(Py_None);
        return Py_None;
    }
    return PyBytes_FromStringAndSize((const char *)bytes, (Py_ssize_t)size);
}

/*
 * Takes something from the collector, or NULL, and returns it. Bytes, numbers and texts
 * lead back to nothing, and a record has nothing else unless its list of headers is
 * changed: to look through thousands of them, again and again, would find nothing.
 */
static PyObject *
untracked(PyObject *made)
{
    if (made != NULL) {
        PyObject_GC_UnTrack(made);
    }
    return made;
}

static PyObject *
not_as_written(void)
{
    PyErr_SetString(PyExc_ValueError, "not what a producer writes");
    return NULL;
}

/* Returns a header, of which two reads have given the parts; NULL with an exception. */
static PyObject *
make_header(const uint8_t *key, int64_t key_size, const uint8_t *value,
            int64_t value_size)
{
    PyObject *name =
        PyUnicode_DecodeUTF8((const char *)key, (Py_ssize_t)key_size, "strict");
    PyObject *content = name ? bytes_or_none(value, value_size) : NULL;
    PyObject *pair = content ? PyTuple_Pack(2, name, content) : NULL;
    Py_XDECREF(name);
    Py_XDECREF(content);
    return untracked(pair);
}

/*
 * Returns a list of (key, value), and adds up their bytes; NULL with an exception. The
 * collector may run Python code each time that something is made, which can see the list:
 * so it is never longer than what is in it.
 */
static PyObject *
make_headers(const Record *record, const uint8_t *end, int64_t *size)
{
    PyObject *headers = PyList_New(0);
    const uint8_t *at = record->headers;
    *size = record->header_count ? 0 : -1;
    for (int64_t i = 0; headers != NULL && i < record->header_count; i++) {
        const uint8_t *key, *value = NULL;
        int64_t key_size, value_size = -1;
        at = read_bytes(at, end, &key, &key_size);
        at = at ? read_bytes(at, end, &value, &value_size) : NULL;
        /* read_record has seen both, unless the buffer changes meanwhile */
        PyObject *pair = at && key_size >= 0
                             ? make_header(key, key_size, value, value_size)
                             : not_as_written();
        if (pair == NULL || PyList_Append(headers, pair) < 0) {
            Py_CLEAR(headers);
        }
        Py_XDECREF(pair);
        *size += key_size + (value_size > 0 ? value_size : 0);
    }
    return untracked(headers);
}

/* Gets the part of a buffer behind `at`; 0 with an exception. */
static int
open_buffer(PyObject *data, Py_ssize_t at, Py_buffer *view)
{
    if (PyObject_GetBuffer(data, view, PyBUF_SIMPLE) < 0) {
        return 0;
    }
    if (at < 0 || at > view->len) {
        PyBuffer_Release(view);
        PyErr_SetString(PyExc_ValueError, "there is no such place");
        return 0;
    }
    return 1;
}

PyDoc_STRVAR(check_doc, "check(data, at, count)\n--\n\n"
"Raise ValueError unless all bytes from `at` on are `count` sound records.");

static PyObject *
check(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *data;
    Py_ssize_t at, count;
    Py_buffer view;
    if (!PyArg_ParseTuple(args, "Onn", &data, &at, &count)
        || !open_buffer(data, at, &view)) {
        return NULL;
    }
    const uint8_t *p = (const uint8_t *)view.buf + at;
    const uint8_t *end = (const uint8_t *)view.buf + view.len;
    /* No Python is needed for this, and a batch may have a gigabyte. */
    PyThreadState *state = end - p > WORTH_LETTING_GO ? PyEval_SaveThread() : NULL;
    Record record;
    for (; count > 0 && p != NULL; count--) {
        p = read_record(p, end, &record);
    }
    if (state != NULL) {
        PyEval_RestoreThread(state);
    }
    PyBuffer_Release(&view);
    if (p != end) {
        return not_as_written();
    }
    Py_INCREF(Py_None);
    return Py_None;
}

PyDoc_STRVAR(pass_over_doc, "pass_over(data, at, count, delta)\n--\n\n"
"Go past records up to the first whose offset is the batch's plus `delta`, or more.\n\n"
"Returns:\n"
"    How many there were, at most `count`; the bytes that they have; where the next\n"
"    one begins; the last one's offset, from the batch's on.");

static PyObject *
pass_over(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *data;
    Py_ssize_t at, count;
    long long delta;
    Py_buffer view;
    if (!PyArg_ParseTuple(args, "OnnL", &data, &at, &count, &delta)
        || !open_buffer(data, at, &view)) {
        return NULL;
    }
    const uint8_t *p = (const uint8_t *)view.buf + at;
    const uint8_t *end = (const uint8_t *)view.buf + view.len;
    Record record;
    Py_ssize_t passed = 0;
    long long size = 0, last = -1;
    for (; passed < count; passed++) {
        const uint8_t *next = read_record(p, end, &record);
        if (next == NULL) {
            PyBuffer_Release(&view);
            return not_as_written();
        }
        if (record.offset_delta >= delta) {
            break;
        }
        p = next;
        size += record.size;
        last = record.offset_delta;
    }
    at = p - (const uint8_t *)view.buf;
    PyBuffer_Release(&view);
    return Py_BuildValue("nLnL", passed, size, at, last);
}

/* Takes the reference; 0 with an exception, which a value that is NULL has set. */
static int
put(PyObject *fields, int place, PyObject *value)
{
    return value != NULL && PyTuple_SetItem(fields, place, value) == 0;
}

/* Takes another reference; 0 with an exception. */
static int
put_same(PyObject *fields, int place, PyObject *value)
{
    Py_INCREF(value);
    return put(fields, place, value);
}

/* Puts what differs from record to record into the tuple; 0 with an exception. */
static int
fill(PyObject *fields, const Record *record, const uint8_t *end, long long offset)
{
    int64_t header_size;
    return put(fields, OFFSET, sum(offset, record->offset_delta))
        && put(fields, KEY, bytes_or_none(record->key, record->key_size))
        && put(fields, VALUE, bytes_or_none(record->value, record->value_size))
        && put(fields, HEADERS, make_headers(record, end, &header_size))
        && put(fields, KEY_SIZE, PyLong_FromLongLong(record->key_size))
        && put(fields, VALUE_SIZE, PyLong_FromLongLong(record->value_size))
        && put(fields, HEADER_SIZE, PyLong_FromLongLong(header_size));
}

/*
 * Returns the only argument of a named tuple's type, a tuple that is filled anew for each
 * one, or NULL with an exception. The collector does not know of either: to change a
 * tuple, nobody else may have it.
 */
static PyObject *
tuple_in_tuple(Py_ssize_t size)
{
    PyObject *arguments = PyTuple_New(1), *fields = PyTuple_New(size);
    if (arguments == NULL || fields == NULL) {
        Py_XDECREF(arguments);
        Py_XDECREF(fields);
        return NULL;
    }
    untracked(fields);
    PyTuple_SetItem(arguments, 0, fields);
    return untracked(arguments);
}

/* Returns those of records, with what all of a batch have; NULL with an exception. */
static PyObject *
make_arguments(PyObject *topic, PyObject *partition, PyObject *epoch,
               PyObject *append_time)
{
    PyObject *arguments = tuple_in_tuple(FIELDS);
    PyObject *fields = arguments ? PyTuple_GetItem(arguments, 0) : NULL;
    if (fields == NULL) {
        return NULL;
    }
    if (put_same(fields, TOPIC, topic) && put_same(fields, PARTITION, partition)
        && put_same(fields, LEADER_EPOCH, epoch)
        && put_same(fields, TIMESTAMP, append_time)
        && put(fields, TIMESTAMP_TYPE, PyLong_FromLong(append_time != Py_None))
        && put_same(fields, CHECKSUM, Py_None)) {
        return arguments;
    }
    Py_DECREF(arguments);
    return NULL;
}

/*
 * Says whether it is a class that Python code has derived from tuple: those are made by
 * tuple's constructor. Types of C, such as those of struct sequences, have their own.
 */
static int
is_plain_tuple(PyTypeObject *kind)
{
    unsigned long flags = PyType_GetFlags(kind);
    return PyType_IsSubtype(kind, &PyTuple_Type) && (flags & Py_TPFLAGS_HEAPTYPE)
        && (flags & Py_TPFLAGS_BASETYPE);
}

/* The class of the records that were read last: its fields stand in their places. */
static PyTypeObject *record_class;

static void
remember_class(PyTypeObject *kind)
{
    PyTypeObject *old = record_class;
    Py_INCREF((PyObject *)kind);
    record_class = kind;
    Py_XDECREF((PyObject *)old);
}

PyDoc_STRVAR(read_doc,
"read(data, at, count, kind, topic, partition, leader_epoch, offset, timestamp,\n"
"     append_time)\n--\n\n"
"Make records of `count` records from `at` on.\n\n"
"Args:\n"
"    kind: a class derived from tuple whose fields are those of kafka-python's record.\n"
"    offset: of the batch.\n"
"    timestamp: of the batch.\n"
"    append_time: the time of all of them, if the broker has set it, else None.\n\n"
"Returns:\n"
"    The records, of which the collector does not know; the bytes that they have;\n"
"    where the next one begins.");

static PyObject *
read_(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *data, *kind, *topic, *partition, *epoch, *append_time;
    Py_ssize_t at, count;
    long long offset, timestamp, size = 0;
    Py_buffer view;
    if (!PyArg_ParseTuple(args, "OnnO!OOOLLO", &data, &at, &count, &PyType_Type, &kind,
                          &topic, &partition, &epoch, &offset, &timestamp, &append_time)) {
        return NULL;
    }
    if (!is_plain_tuple((PyTypeObject *)kind)) {
        PyErr_SetString(PyExc_TypeError, "records are of a class derived from tuple");
        return NULL;
    }
    if (count < 0 || !open_buffer(data, at, &view)) {
        return count < 0 ? not_as_written() : NULL;
    }
    remember_class((PyTypeObject *)kind);
    newfunc new_tuple = (newfunc)PyType_GetSlot(&PyTuple_Type, Py_tp_new);
    PyObject *made = PyList_New(0);
    PyObject *arguments = make_arguments(topic, partition, epoch, append_time);
    int is_sound = made != NULL && arguments != NULL;
    const uint8_t *p = (const uint8_t *)view.buf + at;
    const uint8_t *end = (const uint8_t *)view.buf + view.len;
    for (; is_sound && count > 0; count--) {
        Record record;
        PyObject *fields = PyTuple_GetItem(arguments, 0), *one = NULL;
        p = read_record(p, end, &record);
        if (p == NULL) {
            is_sound = 0;
            not_as_written();
            break;
        }
        if (fill(fields, &record, p, offset)
            && (append_time != Py_None
                || put(fields, TIMESTAMP, sum(timestamp, record.timestamp_delta)))) {
            one = new_tuple((PyTypeObject *)kind, arguments, NULL);
        }
        is_sound = untracked(one) != NULL && PyList_Append(made, one) == 0;
        Py_XDECREF(one);
        size += record.size;
    }
    at = is_sound ? p - (const uint8_t *)view.buf : 0;
    PyBuffer_Release(&view);
    Py_XDECREF(arguments);
    if (!is_sound) {
        Py_XDECREF(made);
        return NULL;
    }
    return Py_BuildValue("NLn", made, size, at);
}

/* CRC-32C, https://www.rfc-editor.org/rfc/rfc3720#appendix-B.4, its bits reversed. */
#define POLYNOMIAL 0x82f63b78u

/* tables[n][b]: what the byte b, with n bytes of zeros behind it, makes of a sum of 0. */
static uint32_t tables[8][256];

static void
fill_tables(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t sum = byte;
        for (int bit = 0; bit < 8; bit++) {
            sum = sum & 1 ? (sum >> 1) ^ POLYNOMIAL : sum >> 1;
        }
        tables[0][byte] = sum;
    }
    for (int zeros = 1; zeros < 8; zeros++) {
        for (int byte = 0; byte < 256; byte++) {
            uint32_t sum = tables[zeros - 1][byte];
            tables[zeros][byte] = (sum >> 8) ^ tables[0][sum & 0xff];
        }
    }
}

static uint32_t
crc_by_tables(uint32_t sum, const uint8_t *at, const uint8_t *end)
{
    for (; end - at >= 8; at += 8) {
        uint32_t low = sum ^ (at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16
                              | (uint32_t)at[3] << 24);
        sum = tables[7][low & 0xff] ^ tables[6][low >> 8 & 0xff]
            ^ tables[5][low >> 16 & 0xff] ^ tables[4][low >> 24]
            ^ tables[3][at[4]] ^ tables[2][at[5]] ^ tables[1][at[6]] ^ tables[0][at[7]];
    }
    for (; at < end; at++) {
        sum = (sum >> 8) ^ tables[0][(sum ^ *at) & 0xff];
    }
    return sum;
}

#ifdef CRC_OF_X86
__attribute__((target("sse4.2"))) static uint32_t
crc_by_instruction(uint32_t sum, const uint8_t *at, const uint8_t *end)
{
    uint64_t wide = sum;
    for (; end - at >= 8; at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        wide = __builtin_ia32_crc32di(wide, word);
    }
    sum = (uint32_t)wide;
    for (; at < end; at++) {
        sum = __builtin_ia32_crc32qi(sum, *at);
    }
    return sum;
}
#endif

#ifdef CRC_OF_ARM
static uint32_t
crc_by_instruction(uint32_t sum, const uint8_t *at, const uint8_t *end)
{
    for (; end - at >= 8; at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        sum = __crc32cd(sum, word);
    }
    for (; at < end; at++) {
        sum = __crc32cb(sum, *at);
    }
    return sum;
}
#endif

static int
has_instruction(void)
{
#if defined(CRC_OF_X86)
    return __builtin_cpu_supports("sse4.2");
#elif defined(CRC_OF_ARM)
    return 1;
#else
    return 0;
#endif
}

static uint32_t
crc_of(const uint8_t *at, const uint8_t *end, int by_tables)
{
    uint32_t sum = 0xffffffffu;
    PyThreadState *state = end - at > WORTH_LETTING_GO ? PyEval_SaveThread() : NULL;
#if defined(CRC_OF_X86) || defined(CRC_OF_ARM)
    if (!by_tables && has_instruction()) {
        sum = crc_by_instruction(sum, at, end);
    }
    else
#endif
    {
        (void)by_tables;
        sum = crc_by_tables(sum, at, end);
    }
    if (state != NULL) {
        PyEval_RestoreThread(state);
    }
    return ~sum;
}

PyDoc_STRVAR(crc32c_doc, "crc32c(data, at, by_tables=False)\n--\n\n"
"Return the CRC-32C of all bytes from `at` on; by tables as where the processor has no\n"
"instruction for it.");

static PyObject *
crc32c(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *data;
    Py_ssize_t at;
    Py_buffer view;
    int by_tables = 0;
    if (!PyArg_ParseTuple(args, "On|p", &data, &at, &by_tables)
        || !open_buffer(data, at, &view)) {
        return NULL;
    }
    const uint8_t *begin = (const uint8_t *)view.buf + at;
    const uint8_t *end = (const uint8_t *)view.buf + view.len;
    uint32_t sum = crc_of(begin, end, by_tables);
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(sum);
}

/* Where the fields of a batch stand, https://kafka.apache.org/documentation/#recordbatch. */
enum {
    AT_LENGTH = 8,
    AT_EPOCH = 12,
    AT_MAGIC = 16,
    AT_CHECKSUM = 17,
    AT_ATTRIBUTES = 21,
    AT_LAST_DELTA = 23,
    AT_FIRST_TIME = 27,
    AT_MAX_TIME = 35,
    AT_PRODUCER = 43,
    AT_COUNT = 57,
    AT_RECORDS = 61
};

enum { CODEC = 0x07, APPEND_TIME = 0x08, TRANSACTIONAL = 0x10, CONTROL = 0x20 };

/* Sums of an offset or a time beyond this and a record's could leave 64 bits. */
#define FAR ((int64_t)1 << 62)

/* Reads a signed number of that many bytes. */
static int64_t
big_endian(const uint8_t *at, int size)
{
    uint64_t bits = *at & 0x80 ? ~(uint64_t)0 : 0;
    for (; size > 0; size--) {
        bits = bits << 8 | *at++;
    }
    return (int64_t)bits;
}

/*
 * Returns where the batch ends, or NULL if it is cut off, of another format, damaged, or
 * has numbers that no broker writes.
 */
static const uint8_t *
end_of_batch(const uint8_t *at, const uint8_t *end, int is_summed)
{
    if (end - at < AT_RECORDS || big_endian(at + AT_LENGTH, 4) > end - at - AT_EPOCH
        || big_endian(at + AT_LENGTH, 4) < AT_RECORDS - AT_EPOCH || at[AT_MAGIC] != 2) {
        return NULL;
    }
    end = at + AT_EPOCH + big_endian(at + AT_LENGTH, 4);
    int64_t offset = big_endian(at, 8), time = big_endian(at + AT_FIRST_TIME, 8);
    if (offset < 0 || offset >= FAR || time <= -FAR || time >= FAR
        || big_endian(at + AT_MAX_TIME, 8) >= FAR || big_endian(at + AT_COUNT, 4) < 0) {
        return NULL;
    }
    return is_summed && crc_of(at + AT_ATTRIBUTES, end, 0)
                            != (uint32_t)big_endian(at + AT_CHECKSUM, 4)
               ? NULL
               : end;
}

/* Reads which marker a control batch has; 0 if it has none that is as brokers write it. */
static int
read_marker(const uint8_t *at, const uint8_t *end, int64_t *kind)
{
    Record record;
    if (at[AT_ATTRIBUTES + 1] & CODEC || big_endian(at + AT_COUNT, 4) < 1
        || read_record(at + AT_RECORDS, end, &record) == NULL || record.key_size != 4) {
        return 0;
    }
    *kind = big_endian(record.key + 2, 2);
    return 1;
}

PyDoc_STRVAR(header_doc, "header(data, at, is_summed)\n--\n\n"
"Read the header of the batch that begins at `at`.\n\n"
"Args:\n"
"    is_summed: whether the checksum must be right.\n\n"
"Returns:\n"
"    What `records.Header` says; None unless there is a whole batch of format 2 as a\n"
"    broker writes it.");

static PyObject *
header(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *data;
    Py_ssize_t at;
    int is_summed;
    Py_buffer view;
    if (!PyArg_ParseTuple(args, "Onp", &data, &at, &is_summed)
        || !open_buffer(data, at, &view)) {
        return NULL;
    }
    const uint8_t *p = (const uint8_t *)view.buf + at;
    const uint8_t *end =
        end_of_batch(p, (const uint8_t *)view.buf + view.len, is_summed);
    int flags = end ? p[AT_ATTRIBUTES + 1] : 0;
    int64_t kind = -1;
    if (end == NULL || (flags & CONTROL && !read_marker(p, end, &kind))) {
        PyBuffer_Release(&view);
        Py_INCREF(Py_None);
        return Py_None;
    }
    int64_t offset = big_endian(p, 8);
    PyObject *append_time = flags & APPEND_TIME
                                ? PyLong_FromLongLong(big_endian(p + AT_MAX_TIME, 8))
                                : bytes_or_none(NULL, -1);
    PyObject *made = Py_BuildValue(
        "nLLLLNLiOOOL", (Py_ssize_t)(end - (const uint8_t *)view.buf), (long long)offset,
        (long long)(offset + big_endian(p + AT_LAST_DELTA, 4) + 1),
        (long long)big_endian(p + AT_EPOCH, 4),
        (long long)big_endian(p + AT_FIRST_TIME, 8), append_time,
        (long long)big_endian(p + AT_PRODUCER, 8), flags & CODEC,
        flags & TRANSACTIONAL ? Py_True : Py_False, flags & CONTROL ? Py_True : Py_False,
        kind == 0 ? Py_True : Py_False, (long long)big_endian(p + AT_COUNT, 4));
    PyBuffer_Release(&view);
    return made;
}

/* What a step of an iteration looks at, by name. */
enum {
    QUEUE,
    SETTLED,
    QUIET,
    POSITION,
    PAUSED,
    REVOKED,
    VALIDATED,
    MOVES,
    SETTLE,
    ITS_OFFSET,
    ITS_EPOCH,
    NAMES
};

static PyObject *names[NAMES], *no_metadata;

static int
add_names(void)
{
    static const char *const texts[NAMES] = {
        "queue", "settled", "quiet", "_position", "paused", "_pending_revocation",
        "_awaiting_validation", "moves", "settle", "offset", "leader_epoch",
    };
    for (int i = 0; i < NAMES; i++) {
        names[i] = PyUnicode_InternFromString(texts[i]);
        if (names[i] == NULL) {
            return -1;
        }
    }
    no_metadata = PyUnicode_InternFromString("");
    return no_metadata == NULL ? -1 : 0;
}

/* The fields of kafka-python's OffsetAndMetadata. */
enum { NEXT_OFFSET, METADATA, EPOCH, POSITION_FIELDS };

/*
 * Whose records are yielded. CHECKED is what was quiet when it was looked at last, and
 * ARGUMENTS what positions are made of, as records are.
 */
enum {
    LEDGER,
    ASSIGNMENT,
    TP,
    STATE,
    PLACE,
    RECORDS,
    WAITING,
    MOVED,
    ARGUMENTS,
    CHECKED,
    PARTS
};

typedef struct {
    PyObject_HEAD
    PyObject *parts[PARTS];
    Py_ssize_t at; /* how many of the records were yielded */
} Steps;

static int
steps_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    for (int i = 0; i < PARTS; i++) {
        Py_VISIT(((Steps *)self)->parts[i]);
    }
    return 0;
}

static int
steps_clear(PyObject *self)
{
    for (int i = 0; i < PARTS; i++) {
        Py_CLEAR(((Steps *)self)->parts[i]);
    }
    return 0;
}

static void
steps_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    steps_clear(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

/* Takes the reference to the new one. */
static void
set_part(Steps *steps, int part, PyObject *new)
{
    PyObject *old = steps->parts[part];
    steps->parts[part] = new;
    Py_XDECREF((PyObject *)old);
}

static PyObject *
steps_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *given[WAITING];
    if (!PyArg_ParseTuple(args, "OO!OOO!O!", &given[LEDGER], &PyDict_Type,
                          &given[ASSIGNMENT], &given[TP], &given[STATE], &PyTuple_Type,
                          &given[PLACE], &PyList_Type, &given[RECORDS])) {
        return NULL;
    }
    if (!is_plain_tuple(Py_TYPE(given[PLACE]))) {
        PyErr_SetString(PyExc_TypeError, "positions are of a class derived from tuple");
        return NULL;
    }
    Steps *steps = (Steps *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (steps == NULL) {
        return NULL;
    }
    for (int i = 0; i < WAITING; i++) {
        Py_INCREF(given[i]);
        steps->parts[i] = given[i];
    }
    steps->parts[WAITING] = PyObject_GetAttr(given[LEDGER], names[QUEUE]);
    steps->parts[MOVED] = PyObject_GetAttr(given[STATE], names[MOVES]);
    steps->parts[ARGUMENTS] = tuple_in_tuple(POSITION_FIELDS);
    for (int i = WAITING; i < CHECKED; i++) {
        if (steps->parts[i] == NULL) {
            Py_DECREF(steps);
            return NULL;
        }
    }
    return (PyObject *)steps;
}

/* Says whether an attribute of the state is this very object; -1 with an exception. */
static int
has(Steps *steps, int name, PyObject *wanted)
{
    PyObject *found = PyObject_GetAttr(steps->parts[STATE], names[name]);
    int is_wanted = found == NULL ? -1 : found == wanted;
    Py_XDECREF(found);
    return is_wanted;
}

/*
 * Returns what is quiet at this moment, or NULL with an exception. What was settled is
 * read after the queue, as a change leaves the queue after it has unsettled that.
 */
static PyObject *
look(Steps *steps)
{
    PyObject *ledger = steps->parts[LEDGER];
    Py_ssize_t waiting = PyObject_Size(steps->parts[WAITING]);
    PyObject *settled = waiting ? NULL : PyObject_GetAttr(ledger, names[SETTLED]);
    if (settled == Py_None || waiting > 0) {
        Py_XDECREF(settled);
        settled = PyObject_CallMethodObjArgs(ledger, names[QUIET], NULL);
    }
    return settled;
}

/* Says whether no hold covers the partition at this moment; -1 with an exception. */
static int
flows(Steps *steps)
{
    PyObject *quiet = look(steps);
    int is_quiet = quiet == NULL                      ? -1
                   : quiet == steps->parts[CHECKED] ? 0
                   : PySequence_Contains(quiet, steps->parts[TP]);
    if (is_quiet == 0 && quiet != steps->parts[CHECKED]) {
        set_part(steps, CHECKED, quiet);
    }
    else {
        Py_XDECREF(quiet);
    }
    return is_quiet < 0 ? -1 : !is_quiet;
}

/* Says whether the ownership and the position are still those; -1 with an exception. */
static int
is_fetchable(Steps *steps)
{
    PyObject *state =
        PyDict_GetItemWithError(steps->parts[ASSIGNMENT], steps->parts[TP]);
    if (state != steps->parts[STATE]) {
        return PyErr_Occurred() ? -1 : 0;
    }
    int is_so = has(steps, POSITION, steps->parts[PLACE]);
    for (int name = PAUSED; is_so > 0 && name <= VALIDATED; name++) {
        is_so = has(steps, name, Py_False);
    }
    return is_so;
}

/* Returns a record's field, of any class: an application's own poll() may have made it. */
static PyObject *
field(PyObject *record, int place, int name)
{
    if (Py_TYPE(record) != record_class) {
        return PyObject_GetAttr(record, names[name]);
    }
    PyObject *found = PyTuple_GetItem(record, place);
    Py_INCREF(found);
    return found;
}

/* Returns the position behind a record; NULL with an exception. */
static PyObject *
behind(Steps *steps, PyObject *record)
{
    PyObject *found = field(record, OFFSET, ITS_OFFSET);
    long long offset = found ? PyLong_AsLongLong(found) : -1;
    Py_XDECREF(found);
    if (offset == -1 && PyErr_Occurred()) {
        return NULL;
    }
    PyObject *arguments = steps->parts[ARGUMENTS], *fields = PyTuple_GetItem(arguments, 0);
    if (put(fields, NEXT_OFFSET, sum(offset, 1))
        && put_same(fields, METADATA, no_metadata)
        && put(fields, EPOCH, field(record, LEADER_EPOCH, ITS_EPOCH))) {
        PyTypeObject *type = Py_TYPE(steps->parts[PLACE]);
        return ((newfunc)PyType_GetSlot(&PyTuple_Type, Py_tp_new))(type, arguments, NULL);
    }
    return NULL;
}

/* Moves the position past a record; 0 with an exception, or if it may not be yielded. */
static int
step(Steps *steps, PyObject *record)
{
    if (flows(steps) <= 0 || is_fetchable(steps) <= 0) {
        return 0;
    }
    PyObject *state = steps->parts[STATE], *position = behind(steps, record);
    if (position == NULL || PyObject_SetAttr(state, names[POSITION], position) < 0) {
        Py_XDECREF(position);
        return 0;
    }
    set_part(steps, PLACE, position);
    int is_still = has(steps, MOVES, steps->parts[MOVED]);
    if (is_still == 0) { /* a seek came in between */
        Py_XDECREF(PyObject_CallMethodObjArgs(state, names[SETTLE], NULL));
    }
    return is_still > 0;
}

static PyObject *
steps_next(PyObject *self)
{
    Steps *steps = (Steps *)self;
    if (steps->at >= PyList_Size(steps->parts[RECORDS])) {
        return NULL;
    }
    PyObject *record = PyList_GetItem(steps->parts[RECORDS], steps->at);
    Py_INCREF(record);
    if (!step(steps, record)) {
        Py_DECREF(record);
        return NULL;
    }
    steps->at++;
    return record;
}

static PyMemberDef steps_members[] = {
    {"tp", T_OBJECT_EX, offsetof(Steps, parts[TP]), READONLY, NULL},
    {"state", T_OBJECT_EX, offsetof(Steps, parts[STATE]), READONLY, NULL},
    {"moves", T_OBJECT_EX, offsetof(Steps, parts[MOVED]), READONLY, NULL},
    {"records", T_OBJECT_EX, offsetof(Steps, parts[RECORDS]), READONLY, NULL},
    {"at", T_PYSSIZET, offsetof(Steps, at), READONLY, NULL},
    {"position", T_OBJECT_EX, offsetof(Steps, parts[PLACE]), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

PyDoc_STRVAR(steps_doc, "Steps(ledger, assignment, tp, state, position, records)\n--\n\n"
"Yields the records of one partition; pausing/steps.py has the same in Python.");

static PyType_Slot steps_slots[] = {
    {Py_tp_doc, (void *)steps_doc},
    {Py_tp_new, steps_new},
    {Py_tp_dealloc, steps_dealloc},
    {Py_tp_traverse, steps_traverse},
    {Py_tp_clear, steps_clear},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, steps_next},
    {Py_tp_members, steps_members},
    {0, NULL},
};

static PyType_Spec steps_spec = {
    .name = "_batches.Steps",
    .basicsize = sizeof(Steps),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = steps_slots,
};

static PyMethodDef functions[] = {
    {"check", check, METH_VARARGS, check_doc},
    {"crc32c", crc32c, METH_VARARGS, crc32c_doc},
    {"header", header, METH_VARARGS, header_doc},
    {"read", read_, METH_VARARGS, read_doc},
    {"pass_over", pass_over, METH_VARARGS, pass_over_doc},
    {NULL, NULL, 0, NULL},
};

static int
add_source(PyObject *module)
{
    fill_tables();
    PyObject *steps = add_names() < 0 ? NULL : PyType_FromSpec(&steps_spec);
    int is_added = steps == NULL ? -1 : PyModule_AddObjectRef(module, "Steps", steps);
    Py_XDECREF(steps);
    return is_added < 0 ? -1 : PyModule_AddStringConstant(module, "SOURCE", SOURCE);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, add_source},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "_batches",
    .m_size = 0,
    .m_methods = functions,
    .m_slots = slots,
};

PyMODINIT_FUNC
PyInit__batches(void)
{
    return PyModuleDef_Init(&definition);
}
