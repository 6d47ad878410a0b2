/* Yields the records of an iteration, and checks for holds before each record. */

#include "batches.h"

/* Adds with wrap-around; no caller's sum exceeds 64 bits. */
static PyObject *
sum(long long one, int64_t other)
{
    return PyLong_FromLongLong((long long)((uint64_t)one + (uint64_t)other));
}

/* Creates the name strings; returns 0 with an exception. */
int
add_names(Module *own)
{
    static const char *const texts[NAMES] = {
        "queue", "settled", "quiet", "_position", "paused", "_pending_revocation",
        "_awaiting_validation", "moves", "restore_move", "offset", "leader_epoch", "",
    };
    for (int i = 0; i < NAMES; i++) {
        own->names[i] = PyUnicode_InternFromString(texts[i]);
        if (own->names[i] == NULL) {
            return 0;
        }
    }
    return 1;
}

/* The fields of kafka-python's OffsetAndMetadata. */
enum { NEXT_OFFSET, METADATA, EPOCH, POSITION_FIELDS };

/*
 * The objects of a Steps. CHECKED is the quiet set of the last check, and ARGUMENTS has the
 * arguments of new positions, as for records. MODULE keeps the module's state alive.
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
    MODULE,
    CHECKED,
    PARTS
};

typedef struct {
    PyObject_HEAD
    PyObject *parts[PARTS];
    Module *own;   /* the module's state */
    Py_ssize_t at; /* the number of yielded records */
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

/* Replaces a part, stealing the reference to the new object. */
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
    PyObject *module = PyType_GetModule(type);
    Steps *steps = module
                     ? (Steps *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0)
                     : NULL;
    if (steps == NULL) {
        return NULL;
    }
    Py_INCREF(module);
    steps->parts[MODULE] = module;
    steps->own = PyModule_GetState(module);
    for (int i = 0; i < WAITING; i++) {
        Py_INCREF(given[i]);
        steps->parts[i] = given[i];
    }
    steps->parts[WAITING] = PyObject_GetAttr(given[LEDGER], steps->own->names[QUEUE]);
    steps->parts[MOVED] = PyObject_GetAttr(given[STATE], steps->own->names[MOVES]);
    steps->parts[ARGUMENTS] = tuple_in_tuple(POSITION_FIELDS);
    for (int i = WAITING; i < CHECKED; i++) {
        if (steps->parts[i] == NULL) {
            Py_DECREF(steps);
            return NULL;
        }
    }
    return (PyObject *)steps;
}

/* Returns whether an attribute of the state is this object; -1 with an exception. */
static int
has(Steps *steps, int name, PyObject *wanted)
{
    PyObject *found = PyObject_GetAttr(steps->parts[STATE], steps->own->names[name]);
    int is_wanted = found == NULL ? -1 : found == wanted;
    Py_XDECREF(found);
    return is_wanted;
}

/*
 * Returns the current quiet set, or NULL with an exception. The settled set is read after
 * the queue, because a change clears the set before the change leaves the queue.
 */
static PyObject *
quiet_now(Steps *steps)
{
    PyObject *ledger = steps->parts[LEDGER], *const *names = steps->own->names;
    Py_ssize_t waiting = PyObject_Size(steps->parts[WAITING]);
    PyObject *settled = waiting ? NULL : PyObject_GetAttr(ledger, names[SETTLED]);
    if (settled == Py_None || waiting > 0) {
        Py_XDECREF(settled);
        settled = PyObject_CallMethodObjArgs(ledger, names[QUIET], NULL);
    }
    return settled;
}

/* Returns whether no hold covers the partition now; -1 with an exception. */
static int
flows(Steps *steps)
{
    PyObject *quiet = quiet_now(steps);
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

/* Returns whether ownership and position are unchanged; -1 with an exception. */
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

/* Returns a field of a record, even one that the program's own poll() has made. */
static PyObject *
field(Steps *steps, PyObject *record, int place, int name)
{
    Module *own = steps->own;
    if (Py_TYPE(record)
        != atomic_load_explicit(&own->record_class, memory_order_relaxed)) {
        return PyObject_GetAttr(record, own->names[name]);
    }
    PyObject *found = PyTuple_GetItem(record, place);
    Py_XINCREF(found);
    return found;
}

/*
 * Returns a new reference to the arguments of a position; NULL with an exception. Without
 * the global interpreter lock the tuple is new, since only its maker thread may fill it.
 */
static PyObject *
arguments_of(Steps *steps)
{
#ifdef Py_GIL_DISABLED
    (void)steps;
    return tuple_in_tuple(POSITION_FIELDS);
#else
    Py_INCREF(steps->parts[ARGUMENTS]);
    return steps->parts[ARGUMENTS];
#endif
}

/* Returns the position after a record; NULL with an exception. */
static PyObject *
behind(Steps *steps, PyObject *record)
{
    PyObject *found = field(steps, record, OFFSET, ITS_OFFSET);
    long long offset = found ? PyLong_AsLongLong(found) : -1;
    Py_XDECREF(found);
    if (offset == -1 && PyErr_Occurred()) {
        return NULL;
    }
    PyObject *arguments = arguments_of(steps), *made = NULL;
    PyObject *fields = arguments ? PyTuple_GetItem(arguments, 0) : NULL;
    if (fields != NULL && put(fields, NEXT_OFFSET, sum(offset, 1))
        && put_same(fields, METADATA, steps->own->names[NO_METADATA])
        && put(fields, EPOCH, field(steps, record, LEADER_EPOCH, ITS_EPOCH))) {
        PyTypeObject *type = Py_TYPE(steps->parts[PLACE]);
        made = ((newfunc)PyType_GetSlot(&PyTuple_Type, Py_tp_new))(type, arguments, NULL);
    }
    Py_XDECREF(arguments);
    return made;
}

/* Moves the position past a record; 0 if the record must not be yielded, or on error. */
static int
step(Steps *steps, PyObject *record)
{
    if (flows(steps) <= 0 || is_fetchable(steps) <= 0) {
        return 0;
    }
    PyObject *state = steps->parts[STATE], *position = behind(steps, record);
    if (position == NULL
        || PyObject_SetAttr(state, steps->own->names[POSITION], position) < 0) {
        Py_XDECREF(position);
        return 0;
    }
    set_part(steps, PLACE, position);
    int is_still = has(steps, MOVES, steps->parts[MOVED]);
    if (is_still == 0) { /* a seek intervened */
        Py_XDECREF(PyObject_CallMethodObjArgs(state, steps->own->names[RESTORE_MOVE], NULL));
    }
    return is_still > 0;
}

/* Returns the next record; NULL at the end, or with an exception. */
static PyObject *
next_alone(Steps *steps)
{
    if (steps->at >= PyList_Size(steps->parts[RECORDS])) {
        return NULL;
    }
    PyObject *record = item_of(steps->parts[RECORDS], steps->at);
    if (record == NULL || !step(steps, record)) {
        Py_XDECREF(record);
        return NULL;
    }
    steps->at++;
    return record;
}

static PyObject *
steps_next(PyObject *self)
{
    PyObject *record;
    BEGIN_ALONE(self);
    record = next_alone((Steps *)self);
    END_ALONE();
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
"Yields the records of one partition; pausing/steps.py does the same in Python.\n\n"
"Only one thread at a time may use an object.");

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
