/* share: see share.h. Elsewhere than on Linux nothing is shared: without seals a reader would be
 * ended by a peer that cuts its memory short. */
#define _GNU_SOURCE /* memfd_create, F_ADD_SEALS */

#include "transfer/share.h"
#include "base/platform/which.h"

#if KVPI_LINUX

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE /* Linux 5.1 */
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef MFD_NOEXEC_SEAL /* Linux 6.3 */
#define MFD_NOEXEC_SEAL 0x0008U
#endif

enum {
    /* With FUTURE_WRITE there are no new mappings to write to, and no holes are made. */
    SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL,
    TMPFS = 0x01021994 /* what a memfd lies in, unless its pages are huge and may be missing */
};

int kvpi_share_exists(void)
{
    return 1;
}

int kvpi_share_is_socket(int socket)
{
    int domain, type;
    socklen_t n = sizeof domain;
    struct sockaddr_storage peer;
    socklen_t n_peer = sizeof peer;
    if (getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &domain, &n) != 0 || domain != AF_UNIX)
        return 0;
    n = sizeof type;
    return getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &n) == 0 && type != SOCK_DGRAM &&
           getpeername(socket, (struct sockaddr *)&peer, &n_peer) == 0;
}

int kvpi_share_keep(int socket)
{
    return fcntl(socket, F_DUPFD_CLOEXEC, 0);
}

/* Give it its pages, all of them now, and seal it. */
static void *fill_and_seal(int memory, size_t bytes)
{
    if (ftruncate(memory, (off_t)bytes) != 0 || posix_fallocate(memory, 0, (off_t)bytes) != 0)
        return NULL;
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, memory, 0);
    if (at == MAP_FAILED)
        return NULL;
    if (fcntl(memory, F_ADD_SEALS, SEALS) == 0)
        return at;
    (void)munmap(at, bytes);
    return NULL;
}

/* Never to be executed: some systems give no other memory (vm.memfd_noexec). Older ones do not know
 * the flag. */
static int create_memory(void)
{
    const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    const int memory = memfd_create("kvpager", flags | MFD_NOEXEC_SEAL);
    return memory < 0 && errno == EINVAL ? memfd_create("kvpager", flags) : memory;
}

int kvpi_share_make(size_t bytes, void **out_memory)
{
    const int memory = create_memory();
    if (memory < 0)
        return -1;
    *out_memory = fill_and_seal(memory, bytes);
    if (*out_memory)
        return memory;
    (void)close(memory);
    return -1;
}

/* Are the seals set, and all pages there? They are looked for one by one: pages that are there
 * behind the end count in the file's blocks, too. */
static int is_whole(int memory, size_t bytes)
{
    struct stat file;
    struct statfs system;
    const int seals = fcntl(memory, F_GET_SEALS); /* -1: it can have none */
    return seals >= 0 && (seals & SEALS) == SEALS && fstat(memory, &file) == 0 &&
           fstatfs(memory, &system) == 0 && system.f_type == TMPFS &&
           file.st_size == (off_t)bytes && lseek(memory, 0, SEEK_HOLE) == (off_t)bytes;
}

const void *kvpi_share_view(int memory, size_t bytes)
{
    if (!is_whole(memory, bytes))
        return NULL;
    void *at = mmap(NULL, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, memory, 0);
    return at == MAP_FAILED ? NULL : at;
}

void kvpi_share_unmap(const void *memory, size_t bytes)
{
    if (memory)
        (void)munmap((void *)(uintptr_t)memory, bytes);
}

/* Room for one descriptor beside a message, and for what a socket may add to it (SO_PASSCRED,
 * SO_PASSSEC). There may be several descriptors then. */
union beside {
    struct cmsghdr align;
    char bytes[512];
};

int kvpi_share_send(int socket, const void *bytes, size_t n_bytes, int memory)
{
    union beside beside = {0};
    struct iovec part = {(void *)(uintptr_t)bytes, n_bytes};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = beside.bytes,
                             .msg_controllen = CMSG_SPACE(sizeof(int))};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(header), &memory, sizeof memory);
    return sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)n_bytes;
}

/* The descriptor that came with a message, if it is one; others are closed. -1: none. */
static int only_descriptor(struct msghdr *message)
{
    int only = -1, n = 0;
    for (struct cmsghdr *h = CMSG_FIRSTHDR(message); h; h = CMSG_NXTHDR(message, h)) {
        const int is_rights = h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS;
        for (size_t at = 0; is_rights && CMSG_LEN(at + sizeof(int)) <= h->cmsg_len;
             at += sizeof(int)) {
            if (n++ > 0)
                (void)close(only);
            memcpy(&only, CMSG_DATA(h) + at, sizeof(int));
        }
    }
    if (n <= 1)
        return only;
    (void)close(only);
    return -1;
}

int kvpi_share_receive(int socket, void *bytes, size_t n_bytes, int *out_memory)
{
    union beside beside;
    struct iovec part = {bytes, n_bytes};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = beside.bytes,
                             .msg_controllen = sizeof beside.bytes};
    const ssize_t n = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    const int memory = only_descriptor(&message);
    if (n == (ssize_t)n_bytes && memory >= 0 && (message.msg_flags & MSG_CTRUNC) == 0) {
        *out_memory = memory;
        return 1;
    }
    if (memory >= 0)
        (void)close(memory);
    return n == 0 ? -1 : -2;
}

int kvpi_share_is_gone(int socket)
{
    struct pollfd end = {.fd = socket, .events = 0};
    return poll(&end, 1, 0) > 0 && (end.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
}

void kvpi_share_leave(int socket)
{
    (void)shutdown(socket, SHUT_RDWR);
}

void kvpi_share_close(int descriptor)
{
    if (descriptor >= 0)
        (void)close(descriptor);
}

#else

int kvpi_share_exists(void)
{
    return 0;
}

int kvpi_share_is_socket(int socket)
{
    (void)socket;
    return 0;
}

int kvpi_share_keep(int socket)
{
    (void)socket;
    return -1;
}

int kvpi_share_make(size_t bytes, void **out_memory)
{
    (void)bytes;
    *out_memory = NULL;
    return -1;
}

const void *kvpi_share_view(int memory, size_t bytes)
{
    (void)memory;
    (void)bytes;
    return NULL;
}

void kvpi_share_unmap(const void *memory, size_t bytes)
{
    (void)memory;
    (void)bytes;
}

int kvpi_share_send(int socket, const void *bytes, size_t n_bytes, int memory)
{
    (void)socket;
    (void)bytes;
    (void)n_bytes;
    (void)memory;
    return 0;
}

int kvpi_share_receive(int socket, void *bytes, size_t n_bytes, int *out_memory)
{
    (void)socket;
    (void)bytes;
    (void)n_bytes;
    *out_memory = -1;
    return -1;
}

int kvpi_share_is_gone(int socket)
{
    (void)socket;
    return 1;
}

void kvpi_share_leave(int socket)
{
    (void)socket;
}

void kvpi_share_close(int descriptor)
{
    (void)descriptor;
}

#endif
