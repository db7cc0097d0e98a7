/* See unpack.h. zlib and libzstd are optional: KVPI_HAS_ZLIB and KVPI_HAS_ZSTD say which of them
 * were there when this was built. A file that needs another one is refused by its name.
 */
#include "tool/input/unpack.h"

#include <stdlib.h>
#include <string.h>

#if defined(KVPI_HAS_ZLIB)
#include <zlib.h>
#endif
#if defined(KVPI_HAS_ZSTD)
#include <zstd.h>
#endif

#define IN_BYTES 65536u

/* zlib keeps 32 KiB of what it unpacked, and tables. */
#define ZLIB_BYTES 49152u

/* How one packer works. Functions that fail set unpack->wrong. */
struct kvpi_unpack_packer {
    unsigned char magic[4];
    size_t n_magic;
    const char *missing; /* NULL: it is there */
    const char *cut;     /* what is said of data without their end */
    void (*begin)(kvpi_unpack *unpack);
    /* Unpack from `in` to `out`: gives how many bytes came out; may take none, or give none. */
    size_t (*step)(kvpi_unpack *unpack, void *out, size_t n);
    void (*end)(kvpi_unpack *unpack);
};

static bool take(kvpi_unpack *unpack, size_t n)
{
    if (!kvpi_budget_take(unpack->budget, n))
        return false;
    unpack->n_taken += n;
    return true;
}

/* --------------------------------------------------------------------------------------- gzip */

#if defined(KVPI_HAS_ZLIB)
static void begin_gzip(kvpi_unpack *unpack)
{
    z_stream *stream = take(unpack, ZLIB_BYTES) ? calloc(1, sizeof *stream) : NULL;
    if (stream != NULL && inflateInit2(stream, 15 + 16) != Z_OK) { /* with gzip's header */
        free(stream);
        stream = NULL;
    }
    unpack->state = stream;
    if (stream == NULL)
        unpack->wrong = "out of memory for unpacking it";
}

static size_t step_gzip(kvpi_unpack *unpack, void *out, size_t n)
{
    z_stream *stream = unpack->state;
    stream->next_in = unpack->in + unpack->at;
    stream->avail_in = (uInt)(unpack->n_in - unpack->at);
    stream->next_out = out;
    stream->avail_out = (uInt)n;
    const int result = inflate(stream, Z_NO_FLUSH);
    unpack->at = unpack->n_in - stream->avail_in;
    unpack->is_open = result != Z_STREAM_END;
    if (result == Z_STREAM_END)
        (void)inflateReset(stream);
    else if (result != Z_OK && result != Z_BUF_ERROR)
        unpack->wrong = "its gzip data are damaged";
    return n - stream->avail_out;
}

static void end_gzip(kvpi_unpack *unpack)
{
    inflateEnd(unpack->state);
    free(unpack->state);
}
#endif

/* --------------------------------------------------------------------------------------- zstd */

#if defined(KVPI_HAS_ZSTD)
static void begin_zstd(kvpi_unpack *unpack)
{
    ZSTD_DCtx *state = ZSTD_createDCtx();
    unpack->state = state;
    if (state == NULL)
        unpack->wrong = "out of memory for unpacking it";
    else
        (void)ZSTD_DCtx_setParameter(state, ZSTD_d_windowLogMax, KVPI_UNPACK_WINDOW_LOG);
}

static size_t step_zstd(kvpi_unpack *unpack, void *out, size_t n)
{
    ZSTD_inBuffer from = {unpack->in, unpack->n_in, unpack->at};
    ZSTD_outBuffer to = {out, n, 0};
    const size_t left = ZSTD_decompressStream(unpack->state, &to, &from);
    const size_t used = ZSTD_sizeof_DCtx(unpack->state);
    unpack->at = from.pos;
    unpack->is_open = left != 0;
    if (ZSTD_isError(left))
        unpack->wrong = "its zstd data are damaged, or need a window of more than 32 MiB";
    if (used > unpack->n_taken - IN_BYTES && !take(unpack, used - (unpack->n_taken - IN_BYTES)))
        unpack->wrong = "out of memory for unpacking it";
    return to.pos;
}

static void end_zstd(kvpi_unpack *unpack)
{
    (void)ZSTD_freeDCtx(unpack->state);
}
#endif

/* ------------------------------------------------------------------------- either of them */

static const kvpi_unpack_packer packers[] = {
#if defined(KVPI_HAS_ZLIB)
    {{0x1f, 0x8b},
     2,
     NULL,
     "its gzip data have no end: the file was cut off",
     begin_gzip,
     step_gzip,
     end_gzip},
#else
    {{0x1f, 0x8b},
     2,
     "is packed by gzip, and this kvpager was built without zlib",
     NULL,
     NULL,
     NULL,
     NULL},
#endif
#if defined(KVPI_HAS_ZSTD)
    {{0x28, 0xb5, 0x2f, 0xfd},
     4,
     NULL,
     "its zstd data have no end: the file was cut off",
     begin_zstd,
     step_zstd,
     end_zstd},
#else
    {{0x28, 0xb5, 0x2f, 0xfd},
     4,
     "is packed by zstd, and this kvpager was built without libzstd",
     NULL,
     NULL,
     NULL,
     NULL},
#endif
};

static void refill(kvpi_unpack *unpack)
{
    unpack->n_in = fread(unpack->in, 1, IN_BYTES, unpack->file);
    unpack->at = 0;
}

/* Looks at the first bytes: they go to `in`, or stay in `head`. */
static void begin(kvpi_unpack *unpack)
{
    unpack->has_begun = true;
    unpack->n_in = fread(unpack->head, 1, sizeof unpack->head, unpack->file);
    for (size_t i = 0; i < sizeof packers / sizeof *packers; i++)
        if (unpack->n_in >= packers[i].n_magic &&
            memcmp(unpack->head, packers[i].magic, packers[i].n_magic) == 0)
            unpack->packer = &packers[i];
    if (unpack->packer == NULL)
        return;
    unpack->wrong = unpack->packer->missing;
    if (unpack->wrong != NULL)
        return;
    unpack->in = take(unpack, IN_BYTES) ? malloc(IN_BYTES) : NULL;
    if (unpack->in == NULL) {
        unpack->wrong = "out of memory for unpacking it";
        return;
    }
    memcpy(unpack->in, unpack->head, unpack->n_in);
    unpack->packer->begin(unpack);
    unpack->is_open = true;
}

static size_t read_plain(kvpi_unpack *unpack, unsigned char *out, size_t n)
{
    size_t done = unpack->n_in - unpack->at;
    done = done < n ? done : n;
    memcpy(out, unpack->head + unpack->at, done);
    unpack->at += done;
    return done + fread(out + done, 1, n - done, unpack->file);
}

size_t kvpi_unpack_read(kvpi_unpack *unpack, void *out, size_t n)
{
    unsigned char *to = out;
    size_t done = 0;
    if (!unpack->has_begun)
        begin(unpack);
    if (unpack->packer == NULL)
        return read_plain(unpack, out, n);
    while (done < n && unpack->wrong == NULL) {
        if (unpack->at == unpack->n_in)
            refill(unpack);
        const bool is_end = unpack->n_in == 0;
        if (is_end && !unpack->is_open)
            break;
        const size_t got = unpack->packer->step(unpack, to + done, n - done);
        if (is_end && got == 0 && unpack->wrong == NULL && !ferror(unpack->file))
            unpack->wrong = unpack->packer->cut;
        if (is_end && got == 0)
            break;
        done += got;
    }
    return done;
}

void kvpi_unpack_close(kvpi_unpack *unpack)
{
    if (unpack->state != NULL)
        unpack->packer->end(unpack);
    free(unpack->in);
    kvpi_budget_give(unpack->budget, unpack->n_taken);
    unpack->n_taken = 0;
    unpack->state = NULL;
    unpack->in = NULL;
}
