/* restart: which weights these are, and the calls of kvpager/llama.h. */
#define _POSIX_C_SOURCE 200809L /* fseeko, access */

#include "restart.h"

#include "../../src/models.h"
#include "../../src/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECES = 256, PIECE_BYTES = 16 * 1024 };

static const char field[] = "--snapshot";

static int refuse(kvp_why *why, const char *text)
{
    (void)kvpi_models_say(why, field, text);
    return -1;
}

/* With the end of its path. */
static int refuse_file(kvp_why *why, const char *path)
{
    enum { END_BYTES = 80 };
    char text[sizeof why->text];
    const size_t n = strlen(path);
    (void)snprintf(text, sizeof text, "%.80s cannot be read, to know its KV again",
                   n > END_BYTES ? &path[n - END_BYTES] : path);
    (void)kvpi_models_say(why, "model", text);
    return -1;
}

int kvpi_restart_check(const char *path, kvp_why *out_why)
{
    struct stat info;
    const char *slash = strrchr(path, '/');
    const size_t n = slash != NULL ? (size_t)(slash - path) + 1 : 0;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return refuse(out_why, "it is no file");
    char *folder = malloc(n + sizeof ".");
    if (folder == NULL)
        return refuse(out_why, "no memory");
    memcpy(folder, path, n);
    memcpy(folder + n, ".", sizeof ".");
    const int error = access(folder, W_OK | X_OK) == 0 ? 0 : errno;
    free(folder);
    return error == 0 ? 0 : refuse(out_why, strerror(error));
}

/* ------------------------------------------------------------------------------ which weights */

/* All of a file up to 4 MiB; else pieces, the first and the last bytes among them. */
static int add_pieces(FILE *file, char *piece, kvp_hash *sum)
{
    if (fseeko(file, 0, SEEK_END) != 0)
        return -1;
    const int64_t n = ftello(file), most = n - PIECE_BYTES;
    const int is_small = n <= PIECES * PIECE_BYTES;
    *sum = kvpi_state_sum(sum, &n, sizeof n);
    for (int64_t i = 0; i < PIECES; i++) {
        const int64_t at = is_small ? i * PIECE_BYTES : most * i / (PIECES - 1);
        if (at >= n)
            return 0;
        if (fseeko(file, (off_t)at, SEEK_SET) != 0)
            return -1;
        const size_t n_bytes = fread(piece, 1, PIECE_BYTES, file);
        if (n_bytes == 0)
            return -1;
        *sum = kvpi_state_sum(sum, piece, n_bytes);
    }
    return 0;
}

static int add_file(const char *path, kvp_hash *sum, kvp_why *why)
{
    FILE *file = fopen(path, "rb");
    char *piece = malloc(PIECE_BYTES);
    const int result = file != NULL && piece != NULL ? add_pieces(file, piece, sum) : -1;
    free(piece);
    if (file != NULL)
        (void)fclose(file);
    return result == 0 ? 0 : refuse_file(why, path);
}

/* Of weights in several files, NAME-00001-of-00003.gguf is named, and all are loaded. */
static int add_weights(const char *path, kvp_hash *sum, kvp_why *why)
{
    enum { END_BYTES = sizeof "-00001-of-00003.gguf" - 1 };
    char text[END_BYTES + 1];
    unsigned first, n_files;
    int n_read = 0;
    const size_t n = strlen(path);
    if (n < END_BYTES ||
        sscanf(&path[n - END_BYTES], "-%5u-of-%5u.gguf%n", &first, &n_files, &n_read) != 2 ||
        n_read != END_BYTES)
        return add_file(path, sum, why);
    char *each = strdup(path);
    int result = each != NULL ? 0 : refuse(why, "no memory");
    for (unsigned i = 1; result == 0 && i <= n_files; i++) {
        (void)snprintf(text, sizeof text, "-%05u-of-%05u.gguf", i, n_files);
        memcpy(&each[n - END_BYTES], text, END_BYTES);
        result = add_file(each, sum, why);
    }
    free(each);
    return result;
}

/* ------------------------------------------------------------------------------- load and save */

int kvpi_restart_identify(kvpi_loop *loop, kvp_why *out_why)
{
    kvp_hash sum = {{0}};
    if (loop->options->snapshot == NULL && loop->options->cache_disk == NULL)
        return 0;
    if (add_weights(loop->options->model, &sum, out_why) != 0 ||
        (loop->options->lora != NULL && add_file(loop->options->lora, &sum, out_why) != 0))
        return -1;
    char *end = loop->identity + sprintf(loop->identity, "kvpager-serve ");
    for (size_t i = 0; i < sizeof sum.bytes; i++)
        end += sprintf(end, "%02x", sum.bytes[i]);
    return 0;
}

void kvpi_restart_load(kvpi_loop *loop)
{
    kvp_why *why = &loop->not_restored;
    const char *path = loop->options->snapshot;
    if (path == NULL || (access(path, F_OK) != 0 && errno == ENOENT))
        return;
    loop->restored.tell = kvpi_tenants_note;
    loop->restored.context = &loop->tenants;
    const kvp_status status =
        kvp_llama_load(loop->engine, loop->identity, path, &loop->restored, why);
    if (status != KVP_OK && why->text[0] == '\0')
        (void)kvpi_models_say(why, field, kvp_status_text(status));
}

int kvpi_restart_save(kvpi_loop *loop, kvp_why *out_why)
{
    kvp_why why;
    const char *path = loop->options->snapshot;
    const kvp_status status = kvp_llama_save(loop->engine, loop->identity, path, &why);
    if (status == KVP_OK)
        return 0;
    return refuse(out_why, why.text[0] != '\0' ? why.text : kvp_status_text(status));
}
