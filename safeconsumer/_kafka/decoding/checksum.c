/* Computes checksums of batches with the processor's instruction or with tables. */

#include "batches.h"

#include <pthread.h>

/* The CRC-32C instruction is detected at run time on x86-64, at build time on ARM. */
#if defined(__x86_64__) && defined(__GNUC__)
#define CRC_OF_X86
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#define CRC_OF_ARM
#endif

/* The reversed CRC-32C, https://www.rfc-editor.org/rfc/rfc3720#appendix-B.4. */
#define POLYNOMIAL 0x82f63b78u

/*
 * tables[n][b] is the sum of the byte b followed by n zero bytes. All interpreters of the
 * process share the tables.
 */
static uint32_t tables[8][256];

static void
make_tables(void)
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

/* Fills the tables once, before any module is ready. */
void
fill_tables(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_tables);
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

uint32_t
crc_of(const uint8_t *at, const uint8_t *end, int by_tables)
{
    uint32_t sum = 0xffffffffu;
    PyThreadState *state = end - at > RELEASE_LOCK_ABOVE ? PyEval_SaveThread() : NULL;
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

const char crc32c_doc[] = 
"crc32c(data, at, by_tables=False)\n--\n\n"
"Return the CRC-32C of all bytes from `at` on; with `by_tables`, use tables even if the\n"
"processor has an instruction for it.";

PyObject *
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
