/* Yields records in an iteration, and looks for holds before each. */

#include "batches.h"

/* Adds as machines do: a sum that leaves 64 bits, which no caller wants, turns over. */
static PyObject *
sum(long long one, int64_t other)
{
    return PyLong_FromLongLong((long long)((uint64_t)one + (uint64_t)other));
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

int
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

PyType_Spec steps_spec = {
    .name = "_batches.Steps",
    .basicsize = sizeof(Steps),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .slots = steps_slots,
};
