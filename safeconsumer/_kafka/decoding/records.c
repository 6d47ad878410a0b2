/*
 * Reads Kafka's batches of format 2: headers, checksums and records. The records of a batch
 * are checked together, and made one by one, as instances of a named tuple's type.
 *
 * No byte outside the buffer is read, whatever the buffer contains. A batch that no broker
 * or producer would write is left to the caller's other decoder, which raises the right
 * error. Format: https://kafka.apache.org/documentation/#recordbatch.
 *
 * This code uses only Python's stable interface, so that one build serves every version
 * from 3.11 on. Each free-threaded Python, which has no such interface, gets its own build.
 */

#include "batches.h"

/* The SHA-256 of the sources, in hex, which reveals a stale library. */
#ifndef SOURCE
#define SOURCE ""
#endif

typedef struct {
    int64_t size; /* bytes, without this field itself */
    int64_t timestamp_delta;
    int64_t offset_delta;
    const uint8_t *key;
    int64_t key_size; /* -1 without a key; likewise below */
    const uint8_t *value;
    int64_t value_size;
    const uint8_t *headers;
    int64_t header_count;
} Record;

/*
 * Reads a signed number of 1 to 9 bytes. Returns its end, or NULL if the number is cut off
 * or longer, because then it has more than 62 bits, and a sum could exceed 64 bits.
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

/* Reads a size, -1 for no value, and skips that many bytes; NULL if there are fewer. */
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
 * Returns whether Python's strict decoder accepts the bytes. Table 3-7 of the Unicode
 * standard has the number of bytes after the first one, and the bounds of the second.
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
            most = 0x9f; /* surrogates follow */
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

/* Returns the end of the record, or NULL if no producer would write it. */
static const uint8_t *
read_record(const uint8_t *at, const uint8_t *end, Record *record)
{
    at = read_number(at, end, &record->size);
    if (at == NULL || record->size < 1 || record->size > end - at) {
        return NULL;
    }
    end = at + record->size;
    if (*at++ & 0x80) { /* attributes; Kafka defines none yet */
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
 * Makes the garbage collector stop tracking an object, which may be NULL, and returns it.
 * Bytes, numbers and strings refer to no other object, and a record has nothing else unless
 * its list of headers is changed, so the collector need not visit thousands of records.
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

/* Makes a header from its parts; returns NULL with an exception. */
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
 * Returns a list of (key, value), and adds up their bytes; NULL with an exception. The list
 * never has empty items, because the garbage collector may run Python code at each
 * allocation, and that code can see the list.
 */
static PyObject *
make_headers(const Record *record, const uint8_t *end, int64_t *size)
{
    PyObject *headers = PyList_New(0);
    const uint8_t *at = record->headers;
    *size = record->header_count ? 0 : -1;
    for (int64_t i = 0; headers != NULL && i < record->header_count; i++) {
        const uint8_t *key, *value = NULL;
        int64_t key_size = 0, value_size = -1;
        at = read_bytes(at, end, &key, &key_size);
        at = at ? read_bytes(at, end, &value, &value_size) : NULL;
        /* read_record has checked both, unless the buffer has changed since */
        PyObject *pair = at && key_size >= 0
                             ? make_header(key, key_size, value, value_size)
                             : not_as_written();
        if (pair == NULL || PyList_Append(headers, pair) < 0) {
            Py_CLEAR(headers);
        }
        Py_XDECREF(pair);
        *size += key_size + (value_size > 0 ? value_size : 0);
    }
    return headers;
}

/* Gets a view of a buffer that has bytes from `at` on; 0 with an exception. */
int
open_buffer(PyObject *data, Py_ssize_t at, Py_buffer *view)
{
    if (PyObject_GetBuffer(data, view, PyBUF_SIMPLE) < 0) {
        return 0;
    }
    if (at < 0 || at > view->len) {
        PyBuffer_Release(view);
        PyErr_SetString(PyExc_ValueError, "there is no such position");
        return 0;
    }
    return 1;
}

/* Stores a value, stealing the reference; 0 with an exception, or if it is NULL. */
int
put(PyObject *fields, int place, PyObject *value)
{
    return value != NULL && PyTuple_SetItem(fields, place, value) == 0;
}

/* Stores a value with a new reference; 0 with an exception. */
int
put_same(PyObject *fields, int place, PyObject *value)
{
    Py_INCREF(value);
    return put(fields, place, value);
}

/* Returns a new reference to an item; NULL with an exception, as after a removal. */
PyObject *
item_of(PyObject *list, Py_ssize_t place)
{
#ifdef Py_GIL_DISABLED
    return PyList_GetItemRef(list, place);
#else
    PyObject *item = PyList_GetItem(list, place);
    Py_XINCREF(item);
    return item;
#endif
}

/*
 * Returns the arguments for a named tuple's type, a tuple with one tuple that is filled
 * again for each instance; NULL with an exception. The garbage collector tracks neither
 * tuple, because a tuple may be changed only while no other code can have it.
 */
PyObject *
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

/*
 * Returns whether Python code has derived the class from tuple, so that tuple's constructor
 * makes its instances. C types, such as struct sequences, have constructors of their own.
 */
int
is_plain_tuple(PyTypeObject *kind)
{
    unsigned long flags = PyType_GetFlags(kind);
    return PyType_IsSubtype(kind, &PyTuple_Type) && (flags & Py_TPFLAGS_HEAPTYPE)
        && (flags & Py_TPFLAGS_BASETYPE);
}

static void
remember_class(Module *own, PyTypeObject *kind)
{
    PyTypeObject *none = NULL;
    if (atomic_load_explicit(&own->record_class, memory_order_relaxed) == NULL
        && atomic_compare_exchange_strong(&own->record_class, &none, kind)) {
        Py_INCREF((PyObject *)kind);
    }
}

/* The positions of batch fields, https://kafka.apache.org/documentation/#recordbatch. */
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

/* Beyond this, the sum of a batch's and a record's number could exceed 64 bits. */
#define FAR ((int64_t)1 << 62)

/* Reads a signed big-endian number of `size` bytes. */
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
 * Returns the end of the batch, or NULL if the batch is cut off, is damaged, has another
 * format, or has numbers that no broker writes.
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

/* Reads the kind of a control batch's marker; 0 if no broker would write the marker. */
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

/* The header of a batch. */
typedef struct {
    const uint8_t *end;
    int64_t offset;
    int64_t behind; /* the first offset after the batch */
    int64_t epoch;
    int64_t first_time;
    int64_t max_time;
    int64_t producer; /* negative without a producer id */
    int64_t count;
    int flags;
    int is_abort_marker;
} Batch;

/* Reads the header of a batch; 0 unless the batch is complete and well-formed. */
static int
read_batch(const uint8_t *at, const uint8_t *end, int is_summed, Batch *batch)
{
    int64_t marker = -1;
    batch->end = end_of_batch(at, end, is_summed);
    if (batch->end == NULL) {
        return 0;
    }
    batch->flags = at[AT_ATTRIBUTES + 1];
    if (batch->flags & CONTROL && !read_marker(at, batch->end, &marker)) {
        return 0;
    }
    batch->offset = big_endian(at, 8);
    batch->behind = batch->offset + big_endian(at + AT_LAST_DELTA, 4) + 1;
    batch->epoch = big_endian(at + AT_EPOCH, 4);
    batch->first_time = big_endian(at + AT_FIRST_TIME, 8);
    batch->max_time = big_endian(at + AT_MAX_TIME, 8);
    batch->producer = big_endian(at + AT_PRODUCER, 8);
    batch->count = big_endian(at + AT_COUNT, 4);
    batch->is_abort_marker = marker == 0;
    return 1;
}

/* Returns whether the bytes are exactly `count` valid records. */
static int
are_valid(const uint8_t *at, const uint8_t *end, int64_t count)
{
    /* The check needs no Python, and a batch may have a gigabyte. */
    PyThreadState *state = end - at > RELEASE_LOCK_ABOVE ? PyEval_SaveThread() : NULL;
    Record record;
    for (; count > 0 && at != NULL; count--) {
        at = read_record(at, end, &record);
    }
    if (state != NULL) {
        PyEval_RestoreThread(state);
    }
    return at == end;
}

/* The objects with which a reader is constructed. */
enum {
    DATA,
    KIND,
    OF_TOPIC,
    OF_PARTITION,
    IS_ABORTED,
    UNCOMPRESS,
    KEYS,
    VALUES,
    AGAIN,
    HEADER_BYTES,
    METHOD, /* the name of a deserializer's method */
    READER_PARTS
};

/* Reads the records of a response. The counts change with each record. */
typedef struct {
    PyObject_HEAD
    PyObject *parts[READER_PARTS];
    PyObject *unpacked;   /* the open batch's records, if they were compressed, or NULL */
    Py_ssize_t batch;     /* the start of the next batch in the response */
    Py_ssize_t at;        /* the start of the open batch's next record */
    Py_ssize_t left;      /* the number of records left in the open batch */
    long long base;       /* the open batch's base offset and times */
    long long first_time;
    long long max_time;
    long long epoch;
    long long behind;     /* the first offset after the last batch; -1 before any batch */
    long long least;      /* the first offset that is wanted */
    long long next_offset;
    long long records_read;
    long long bytes_read;
    int is_summed;
    int is_append_time;
    char is_transactional; /* whether any batch belongs to a transaction */
    char is_skipping;      /* whether no wanted offset was reached yet */
    char is_closed;
    char is_taking;
} Reader;

/* The references and buffers of one take() call. */
typedef struct {
    PyObject *data;
    Py_buffer answer;
    Py_buffer unpacked;   /* has no object if the open batch was not compressed */
    const uint8_t *begin; /* the bytes with the open batch's records */
    const uint8_t *end;
    PyObject *arguments;
} Taking;

/* Gets the bytes of the open batch; 0 with an exception. */
static int
view_batch(Reader *reader, Taking *taking)
{
    Py_buffer *view = &taking->answer;
    Py_ssize_t end = reader->batch;
    PyObject *unpacked = reader->unpacked;
    if (unpacked != NULL) {
        view = &taking->unpacked;
        Py_INCREF(unpacked); /* its buffer protocol may close the reader */
        int is_open = PyObject_GetBuffer(unpacked, view, PyBUF_SIMPLE) == 0;
        Py_DECREF(unpacked);
        if (!is_open) {
            return 0;
        }
        end = view->len;
    }
    if (end > view->len || reader->at > end) { /* the buffer has become shorter */
        not_as_written();
        return 0;
    }
    taking->begin = view->buf;
    taking->end = taking->begin + end;
    return 1;
}

/* Stores the fields that all records of the open batch share; 0 with an exception. */
static int
put_of_batch(Reader *reader, Taking *taking)
{
    PyObject *fields = PyTuple_GetItem(taking->arguments, 0);
    return put(fields, LEADER_EPOCH, PyLong_FromLongLong(reader->epoch))
        && put(fields, TIMESTAMP_TYPE, PyLong_FromLong(reader->is_append_time))
        && put(fields, TIMESTAMP, PyLong_FromLongLong(reader->max_time));
}

static void
end_taking(Taking *taking)
{
    PyBuffer_Release(&taking->unpacked);
    PyBuffer_Release(&taking->answer);
    Py_CLEAR(taking->arguments);
    Py_CLEAR(taking->data);
}

/* Gets the references and buffers of a take() call; 0 with an exception. */
static int
begin_taking(Reader *reader, Taking *taking)
{
    taking->data = reader->parts[DATA];
    Py_INCREF(taking->data);
    if (!open_buffer(taking->data, reader->batch, &taking->answer)) {
        return 0;
    }
    taking->arguments = tuple_in_tuple(FIELDS);
    PyObject *fields = taking->arguments ? PyTuple_GetItem(taking->arguments, 0) : NULL;
    return fields != NULL && put_same(fields, TOPIC, reader->parts[OF_TOPIC])
        && put_same(fields, PARTITION, reader->parts[OF_PARTITION])
        && put_same(fields, CHECKSUM, Py_None)
        && (!reader->left
            || (view_batch(reader, taking) && put_of_batch(reader, taking)));
}

/* Forgets the open batch and its decompressed records. */
static void
leave_batch(Reader *reader, Taking *taking)
{
    reader->left = 0;
    PyBuffer_Release(&taking->unpacked);
    Py_CLEAR(reader->unpacked);
}

/* Decompresses the records of a batch; 0 if that is impossible, -1 with an exception. */
static int
uncompress(Reader *reader, Taking *taking, const uint8_t *at, const Batch *batch)
{
    const uint8_t *begin = taking->answer.buf;
    PyObject *unpacked = PyObject_CallFunction(
        reader->parts[UNCOMPRESS], "Onni", taking->data, at + AT_RECORDS - begin,
        batch->end - begin, batch->flags & CODEC);
    if (unpacked == NULL || unpacked == Py_None) {
        Py_XDECREF(unpacked);
        return unpacked == NULL ? -1 : 0;
    }
    reader->unpacked = unpacked;
    return 1;
}

/* Opens a batch; 0 if its records are not valid, -1 with an exception. */
static int
open_batch(Reader *reader, Taking *taking, const uint8_t *at, const Batch *batch)
{
    const uint8_t *begin = taking->answer.buf;
    reader->at = at + AT_RECORDS - begin;
    if (batch->flags & CODEC) {
        int is_done = uncompress(reader, taking, at, batch);
        if (is_done <= 0) {
            return is_done;
        }
        reader->at = 0;
    }
    reader->batch = batch->end - begin;
    reader->base = batch->offset;
    reader->first_time = batch->first_time;
    reader->max_time = batch->max_time;
    reader->is_append_time = (batch->flags & APPEND_TIME) != 0;
    if (!view_batch(reader, taking) || !put_of_batch(reader, taking)) {
        return -1;
    }
    if (!are_valid(taking->begin + reader->at, taking->end, batch->count)) {
        leave_batch(reader, taking);
        reader->batch = at - begin;
        return 0;
    }
    reader->left = (Py_ssize_t)batch->count;
    return 1;
}

/* Returns whether the application gets no record of a batch; -1 on error. */
static int
is_left_out(Reader *reader, const Batch *batch)
{
    int is_aborted = 0;
    if (reader->parts[IS_ABORTED] != Py_None && batch->producer >= 0) {
        PyObject *found = PyObject_CallFunction(
            reader->parts[IS_ABORTED], "LLii", (long long)batch->producer,
            (long long)batch->behind - 1, (batch->flags & TRANSACTIONAL) != 0,
            batch->is_abort_marker);
        is_aborted = found == NULL ? -1 : PyObject_IsTrue(found);
        Py_XDECREF(found);
    }
    return is_aborted ? is_aborted : (batch->flags & CONTROL) != 0;
}

/* Moves to the next batch; 0 if another decoder must read it, -1 with an exception. */
static int
next_batch(Reader *reader, Taking *taking)
{
    const uint8_t *at = (const uint8_t *)taking->answer.buf + reader->batch;
    Batch batch;
    leave_batch(reader, taking);
    if (!read_batch(at, (const uint8_t *)taking->answer.buf + taking->answer.len,
                    reader->is_summed, &batch)) {
        return 0;
    }
    reader->epoch = batch.epoch;
    reader->is_transactional |= (batch.flags & TRANSACTIONAL) != 0;
    reader->behind = batch.behind;
    int is_out = is_left_out(reader, &batch);
    if (is_out > 0) {
        reader->batch = batch.end - (const uint8_t *)taking->answer.buf;
        reader->next_offset = batch.behind;
        return 1;
    }
    return is_out < 0 ? -1 : open_batch(reader, taking, at, &batch);
}

/* Returns a new reference to the raised error, and clears the error; NULL without one. */
static PyObject *
raised(void)
{
    PyObject *kind, *error, *trace;
    PyErr_Fetch(&kind, &error, &trace);
    PyErr_NormalizeException(&kind, &error, &trace);
    if (trace != NULL) {
        PyException_SetTraceback(error, trace);
    }
    Py_XDECREF(kind);
    Py_XDECREF(trace);
    return error;
}

/*
 * Steals the reference to a key or a value, and returns the deserialized value; NULL with
 * an exception. A deserializer that accepts no headers raises a TypeError.
 */
static PyObject *
deserialized(Reader *reader, int by, PyObject *headers, PyObject *data)
{
    PyObject *deserializer = reader->parts[by], *topic = reader->parts[OF_TOPIC];
    if (data == NULL || deserializer == Py_None) {
        return data;
    }
    PyObject *value = PyObject_CallMethodObjArgs(deserializer, reader->parts[METHOD], topic,
                                                 headers, data, NULL);
    if (value == NULL && PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyObject *error = raised();
        value = PyObject_CallFunctionObjArgs(reader->parts[AGAIN], deserializer, topic,
                                             data, error, NULL);
        Py_DECREF(error);
    }
    Py_DECREF(data);
    return value;
}

static int
deserializes(Reader *reader)
{
    return reader->parts[KEYS] != Py_None || reader->parts[VALUES] != Py_None;
}

/*
 * Returns the size of headers in bytes, -1 without headers; NULL with an exception. If a
 * deserializer has changed the list, Python code measures the list.
 */
static PyObject *
measured(Reader *reader, PyObject *headers, PyObject *before, int64_t size)
{
    Py_ssize_t count = PyList_Size(headers);
    int is_same = count == (before ? PyList_Size(before) : 0);
    for (Py_ssize_t i = 0; is_same && i < count; i++) {
        PyObject *item = item_of(headers, i);
        if (item == NULL) {
            return NULL;
        }
        is_same = item == PyList_GetItem(before, i);
        Py_DECREF(item);
    }
    if (is_same || count == 0) {
        return PyLong_FromLongLong(count ? size : -1);
    }
    return PyObject_CallFunctionObjArgs(reader->parts[HEADER_BYTES], headers, NULL);
}

/* Stores a record's key and value in the tuple; 0 with an exception. */
static int
put_content(Reader *reader, PyObject *fields, const Record *record, PyObject *headers)
{
    return put(fields, KEY,
               deserialized(reader, KEYS, headers,
                            bytes_or_none(record->key, record->key_size)))
        && put(fields, VALUE,
               deserialized(reader, VALUES, headers,
                            bytes_or_none(record->value, record->value_size)));
}

/* Stores deserialized key and value, and the headers' size; 0 with an exception. */
static int
put_deserialized(Reader *reader, PyObject *fields, const Record *record,
                 PyObject *headers, int64_t size)
{
    PyObject *before = NULL; /* keeps the headers alive, and their addresses unique */
    if (record->header_count) {
        before = PyList_GetSlice(headers, 0, PyList_Size(headers));
        if (before == NULL) {
            return 0;
        }
    }
    int is_put = put_content(reader, fields, record, headers)
              && put(fields, HEADER_SIZE, measured(reader, headers, before, size));
    Py_XDECREF(before);
    return is_put;
}

/* Stores a record's key, value and headers in the tuple; 0 with an exception. */
static int
put_all(Reader *reader, PyObject *fields, const Record *record, const uint8_t *end)
{
    int64_t size;
    PyObject *headers = make_headers(record, end, &size);
    if (headers == NULL || !put_same(fields, HEADERS, headers)) {
        Py_XDECREF(headers);
        return 0;
    }
    int is_put = deserializes(reader)
                   ? put_deserialized(reader, fields, record, headers, size)
                   : put_content(reader, fields, record, untracked(headers))
                         && put(fields, HEADER_SIZE, PyLong_FromLongLong(size));
    Py_DECREF(headers);
    return is_put;
}

/* Makes a record; returns NULL with an exception. */
static PyObject *
make_record(Reader *reader, PyObject *arguments, const Record *record, const uint8_t *end)
{
    PyObject *fields = PyTuple_GetItem(arguments, 0), *one;
    if (!put(fields, OFFSET, PyLong_FromLongLong(reader->base + record->offset_delta))
        || !put(fields, KEY_SIZE, PyLong_FromLongLong(record->key_size))
        || !put(fields, VALUE_SIZE, PyLong_FromLongLong(record->value_size))
        || (!reader->is_append_time
            && !put(fields, TIMESTAMP,
                    PyLong_FromLongLong(reader->first_time + record->timestamp_delta)))
        || !put_all(reader, fields, record, end)) {
        return NULL;
    }
    newfunc new_tuple = (newfunc)PyType_GetSlot(&PyTuple_Type, Py_tp_new);
    one = new_tuple((PyTypeObject *)reader->parts[KIND], arguments, NULL);
    return deserializes(reader) ? one : untracked(one);
}

/* Takes the next record of the open batch, if it is wanted; -1 with an exception. */
static int
take_one(Reader *reader, Taking *taking, PyObject *taken)
{
    Record record;
    const uint8_t *end = read_record(taking->begin + reader->at, taking->end, &record);
    if (end == NULL) {
        not_as_written();
        return -1;
    }
    int64_t offset = reader->base + record.offset_delta;
    reader->is_skipping = reader->is_skipping && offset < reader->least;
    if (!reader->is_skipping) {
        PyObject *one = make_record(reader, taking->arguments, &record, end);
        int is_taken = one != NULL && PyList_Append(taken, one) == 0;
        Py_XDECREF(one);
        if (!is_taken) {
            return -1;
        }
    }
    reader->at = end - taking->begin;
    reader->left--;
    reader->records_read++;
    reader->bytes_read += record.size;
    reader->next_offset = offset + 1;
    return !reader->is_skipping;
}

/* Takes records; 0 if another decoder must read the rest, -1 with an exception. */
static int
take_all(Reader *reader, Taking *taking, PyObject *taken, Py_ssize_t most)
{
    while (most > 0 && !reader->is_closed) {
        if (reader->left) {
            int is_taken = take_one(reader, taking, taken);
            if (is_taken < 0) {
                return -1;
            }
            most -= is_taken;
        }
        else {
            int is_found = next_batch(reader, taking);
            if (is_found <= 0) {
                return is_found;
            }
        }
    }
    return 1;
}

PyDoc_STRVAR(take_doc, "take($self, taken, most, /)\n--\n\n"
"Append up to `most` records to a list.\n\n"
"Returns:\n"
"    Whether another decoder must read the batch at `batch` and all later ones.\n\n"
"Raises:\n"
"    Exception: a deserializer's. The records before the failing one are in the list;\n"
"        the failing one was not counted.\n"
"    ValueError: records are being taken already, by another thread or by the caller\n"
"        of this deserializer; or the data was changed during the call.");

static PyObject *
take_alone(Reader *reader, PyObject *taken, Py_ssize_t most)
{
    if (reader->is_taking) { /* a deserializer or another thread takes records */
        PyErr_SetString(PyExc_ValueError, "records are being taken already");
        return NULL;
    }
    if (reader->is_closed) {
        return PyBool_FromLong(0);
    }
    Taking taking = {0};
    reader->is_taking = 1;
    int has_more = begin_taking(reader, &taking)
                     ? take_all(reader, &taking, taken, most)
                     : -1;
    end_taking(&taking);
    reader->is_taking = 0;
    if (reader->is_closed) { /* by a call during the take */
        Py_CLEAR(reader->unpacked);
    }
    return has_more < 0 ? NULL : PyBool_FromLong(!has_more && !reader->is_closed);
}

static PyObject *
reader_take(PyObject *self, PyObject *args)
{
    PyObject *taken, *result;
    Py_ssize_t most;
    if (!PyArg_ParseTuple(args, "O!n", &PyList_Type, &taken, &most)) {
        return NULL;
    }
    BEGIN_ALONE(self);
    result = take_alone((Reader *)self, taken, most);
    END_ALONE();
    return result;
}

PyDoc_STRVAR(close_doc, "close($self, /)\n--\n\n"
"Free the answer. No record is taken any more, not even by a `take` under way.");

static PyObject *
reader_close(PyObject *self, PyObject *Py_UNUSED(args))
{
    Reader *reader = (Reader *)self;
    BEGIN_ALONE(self);
    reader->is_closed = 1;
    Py_CLEAR(reader->parts[DATA]);
    Py_CLEAR(reader->unpacked);
    END_ALONE();
    Py_INCREF(Py_None);
    return Py_None;
}

static int
reader_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((Reader *)self)->unpacked);
    for (int i = 0; i < READER_PARTS; i++) {
        Py_VISIT(((Reader *)self)->parts[i]);
    }
    return 0;
}

static int
reader_clear(PyObject *self)
{
    ((Reader *)self)->is_closed = 1;
    Py_CLEAR(((Reader *)self)->unpacked);
    for (int i = 0; i < READER_PARTS; i++) {
        Py_CLEAR(((Reader *)self)->parts[i]);
    }
    return 0;
}

static void
reader_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    reader_clear(self);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
    Py_DECREF(type);
}

static PyObject *
reader_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    PyObject *given[READER_PARTS] = {NULL};
    long long least;
    int is_summed;
    if (!PyArg_ParseTuple(args, "OO!OOLpOOOOOO", &given[DATA], &PyType_Type, &given[KIND],
                          &given[OF_TOPIC], &given[OF_PARTITION], &least, &is_summed,
                          &given[IS_ABORTED], &given[UNCOMPRESS], &given[KEYS],
                          &given[VALUES], &given[AGAIN], &given[HEADER_BYTES])) {
        return NULL;
    }
    if (!is_plain_tuple((PyTypeObject *)given[KIND])) {
        PyErr_SetString(PyExc_TypeError, "records are of a class derived from tuple");
        return NULL;
    }
    Module *own = PyType_GetModuleState(type);
    Reader *reader =
        own ? (Reader *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0) : NULL;
    if (reader == NULL) {
        return NULL;
    }
    for (int i = 0; i < METHOD; i++) {
        Py_INCREF(given[i]);
        reader->parts[i] = given[i];
    }
    reader->least = reader->next_offset = least;
    reader->epoch = reader->behind = -1;
    reader->is_summed = is_summed;
    reader->is_skipping = 1;
    reader->parts[METHOD] = PyUnicode_InternFromString("deserialize");
    if (reader->parts[METHOD] == NULL) {
        Py_CLEAR(reader);
    }
    else {
        remember_class(own, (PyTypeObject *)given[KIND]);
    }
    return (PyObject *)reader;
}

static PyMemberDef reader_members[] = {
    {"batch", T_PYSSIZET, offsetof(Reader, batch), READONLY, NULL},
    {"behind", T_LONGLONG, offsetof(Reader, behind), READONLY, NULL},
    {"bytes_read", T_LONGLONG, offsetof(Reader, bytes_read), READONLY, NULL},
    {"is_skipping", T_BOOL, offsetof(Reader, is_skipping), READONLY, NULL},
    {"is_transactional", T_BOOL, offsetof(Reader, is_transactional), READONLY, NULL},
    {"leader_epoch", T_LONGLONG, offsetof(Reader, epoch), READONLY, NULL},
    {"next_fetch_offset", T_LONGLONG, offsetof(Reader, next_offset), READONLY, NULL},
    {"records_read", T_LONGLONG, offsetof(Reader, records_read), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef reader_methods[] = {
    {"take", reader_take, METH_VARARGS, take_doc},
    {"close", reader_close, METH_NOARGS, close_doc},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(reader_doc,
"Reader(data, kind, topic, partition, least, is_summed, is_aborted, uncompress,\n"
"       keys, values, again, header_bytes)\n--\n\n"
"Reads the records of all batches in a response.\n\n"
"Only one thread may take records; others may close the reader, and get an error if\n"
"they take records.\n\n"
"Args:\n"
"    kind: a class derived from tuple whose fields are those of kafka-python's record.\n"
"    least: the first offset that is wanted. Records before it are not deserialized.\n"
"    is_summed: whether to verify checksums.\n"
"    is_aborted: called with a producer's id, the last offset of its batch, whether the\n"
"        batch is transactional, and whether it is an abort marker; returns whether the\n"
"        batch belongs to an aborted transaction. None if all batches are wanted.\n"
"    uncompress: called with the data, the start and end of a batch's records, and their\n"
"        codec; returns the decompressed records, or None if that is impossible.\n"
"    keys: a deserializer, or None.\n"
"    values: likewise.\n"
"    again: called with a deserializer, the topic, the data and a TypeError that was\n"
"        raised when the deserializer was called with headers.\n"
"    header_bytes: called with a list of headers that a deserializer may have changed.");

static PyType_Slot reader_slots[] = {
    {Py_tp_doc, (void *)reader_doc},
    {Py_tp_new, reader_new},
    {Py_tp_dealloc, reader_dealloc},
    {Py_tp_traverse, reader_traverse},
    {Py_tp_clear, reader_clear},
    {Py_tp_members, reader_members},
    {Py_tp_methods, reader_methods},
    {0, NULL},
};

static PyType_Spec reader_spec = {
    .name = "_batches.Reader",
    .basicsize = sizeof(Reader),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = reader_slots,
};

static PyMethodDef functions[] = {
    {"crc32c", crc32c, METH_VARARGS, crc32c_doc},
    {NULL, NULL, 0, NULL},
};

/* Adds a type, from which code finds the module's state; 0 with an exception. */
static int
add_type(PyObject *module, const char *name, PyType_Spec *spec)
{
    PyObject *type = PyType_FromModuleAndSpec(module, spec, NULL);
    int is_added = type != NULL && PyModule_AddObjectRef(module, name, type) == 0;
    Py_XDECREF(type);
    return is_added;
}

static int
fill_module(PyObject *module)
{
    fill_tables();
    if (!add_names(PyModule_GetState(module)) || !add_type(module, "Reader", &reader_spec)
        || !add_type(module, "Steps", &steps_spec)) {
        return -1;
    }
    return PyModule_AddStringConstant(module, "SOURCE", SOURCE);
}

static int
module_traverse(PyObject *module, visitproc visit, void *arg)
{
    Module *own = PyModule_GetState(module);
    if (own != NULL) { /* NULL before the module is initialized */
        Py_VISIT((PyObject *)atomic_load(&own->record_class));
    }
    return 0;
}

static int
module_clear(PyObject *module)
{
    Module *own = PyModule_GetState(module);
    if (own != NULL) {
        Py_XDECREF((PyObject *)atomic_exchange(&own->record_class, NULL));
    }
    return 0;
}

/* The names are freed last, because a string cannot be part of a cycle. */
static void
module_free(void *module)
{
    Module *own = PyModule_GetState(module);
    module_clear(module);
    for (int i = 0; own != NULL && i < NAMES; i++) {
        Py_CLEAR(own->names[i]);
    }
}

/* Python's headers define these only from 3.12 or 3.13 on; the numbers never change. */
enum { OF_INTERPRETERS = 3, OF_LOCK = 4 };
#define HAVE_EACH_THEIR_LOCK ((void *)2)
#define NEED_NO_LOCK ((void *)1)

/* An older Python refuses slots it does not know, so its definition starts further down. */
static PyModuleDef_Slot slots[] = {
    {OF_LOCK, NEED_NO_LOCK},                 /* from 3.13 on */
    {OF_INTERPRETERS, HAVE_EACH_THEIR_LOCK}, /* from 3.12 on */
    {Py_mod_exec, fill_module},
    {0, NULL},
};

#define DEFINITION(first_slot)                                                         \
    {                                                                                  \
        PyModuleDef_HEAD_INIT,                                                         \
        .m_name = "_batches",                                                          \
        .m_size = sizeof(Module),                                                      \
        .m_methods = functions,                                                        \
        .m_slots = slots + (first_slot),                                               \
        .m_traverse = module_traverse,                                                 \
        .m_clear = module_clear,                                                       \
        .m_free = module_free,                                                         \
    }

static struct PyModuleDef of_3_13 = DEFINITION(0), of_3_12 = DEFINITION(1),
                          of_3_11 = DEFINITION(2);

PyMODINIT_FUNC
PyInit__batches(void)
{
    return PyModuleDef_Init(Py_Version >= 0x030d0000   ? &of_3_13
                            : Py_Version >= 0x030c0000 ? &of_3_12
                                                       : &of_3_11);
}
