/* secret: what is wrong with the file is said before anything of it is read. */
#define _GNU_SOURCE
#include "store/identity/secret.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROOM = KVPI_SECRET_MAX + 256 }; /* white space too */

/* NULL: it may be read. */
static const char *find_wrong(int fd)
{
    struct stat file;
    if (fstat(fd, &file) != 0)
        return strerror(errno);
    if (!S_ISREG(file.st_mode))
        return "it is no file";
    if (file.st_uid != geteuid() && file.st_uid != 0)
        return "it belongs to another user";
    if (file.st_mode & (S_IRWXG | S_IRWXO))
        return "other users may read or write it: chmod 600";
    return NULL;
}

/* Bytes; -1: errno tells. */
static ssize_t read_all(int fd, uint8_t *out, size_t capacity)
{
    size_t n = 0;
    while (n < capacity) {
        const ssize_t part = read(fd, out + n, capacity - n);
        if (part < 0 && errno == EINTR)
            continue;
        if (part < 0)
            return -1;
        if (part == 0)
            break;
        n += (size_t)part;
    }
    return (ssize_t)n;
}

/* NULL: out_secret has it. */
static const char *take(int fd, struct kvpi_secret *out_secret)
{
    uint8_t bytes[ROOM];
    const char *wrong = NULL;
    const ssize_t n = read_all(fd, bytes, sizeof bytes);
    size_t first = 0;
    size_t end = n > 0 ? (size_t)n : 0;
    while (first < end && isspace(bytes[first]))
        first++;
    while (end > first && isspace(bytes[end - 1]))
        end--;
    if (n < 0)
        wrong = strerror(errno);
    else if (n == sizeof bytes || end - first < KVPI_SECRET_MIN || end - first > KVPI_SECRET_MAX)
        wrong = "it does not have 16 to 1024 bytes";
    if (!wrong) {
        out_secret->n_bytes = end - first;
        memcpy(out_secret->bytes, bytes + first, end - first);
    }
    explicit_bzero(bytes, sizeof bytes);
    return wrong;
}

kvp_status kvpi_secret_read(struct kvpi_url *url, struct kvpi_secret *out_secret, char *out_why,
                            size_t why_bytes)
{
    static const char scheme[] = "file:";
    out_secret->n_bytes = 0;
    const char *value = kvpi_url_option(url, "secret");
    if (!value)
        return KVP_OK;
    if (strncmp(value, scheme, strlen(scheme)) != 0 || !value[strlen(scheme)])
        return kvpi_why(KVP_E_ARG, out_why, why_bytes,
                        "secret is not file:PATH; the secret itself must not be in a URL");
    const char *path = value + strlen(scheme);
    /* O_NONBLOCK: a pipe in its place does not hold us up. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const char *wrong = fd < 0 ? (errno == ELOOP ? "it is a link" : strerror(errno)) : NULL;
    if (!wrong)
        wrong = find_wrong(fd);
    if (!wrong)
        wrong = take(fd, out_secret);
    if (fd >= 0)
        close(fd);
    return wrong ? kvpi_why(KVP_E_ARG, out_why, why_bytes, "secret \"%s\": %s", path, wrong)
                 : KVP_OK;
}

void kvpi_secret_forget(struct kvpi_secret *secret)
{
    explicit_bzero(secret->bytes, sizeof secret->bytes);
    secret->n_bytes = 0;
}
