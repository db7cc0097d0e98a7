/* Links over shared memory, when the peer is hostile: hellos that are none, memory that could be
 * taken back, counters and lengths that lie, KV that changes while it is read. And when the system
 * refuses what the link asks it for. */
#define _GNU_SOURCE /* memfd_create, F_ADD_SEALS */

#include "transfer_world.h"

#include "base/bytes.h"
#include "base/checksum.h"
#include "transfer/shm.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

enum {
    SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL,
    MESSAGE = 1024,
    MESSAGES = 2,
    PAGE = 4096,
    STRIDE = 1088, /* 48 + 1024, in lines of 64 */
    RING = 2 * PAGE,
    AT_TAKEN = 64,
    AT_LENGTH = PAGE,
    AT_BYTES = PAGE + 48,
    HELLO = 24
};

/* ------------------------------------------------------------------------ what the system gives */

enum { NOTHING, CALLOC, MEMFD, TRUNCATE, ALLOCATE, MAP, FCNTL, SENDMSG, RECVMSG, CALLS };

static enum { ANY_MEMORY, STRICT_MEMORY, OLD_MEMORY } memory_kind; /* that the system makes */
static int refused;                                                /* which call */
static uint32_t refused_nth;                                       /* from 1 */
static uint32_t n_called;
static void (*on_checksum)(void); /* after each body */
static void (*on_poll)(void);     /* before the socket is asked */

static int is_refused(int call)
{
    return refused == call && ++n_called == refused_nth;
}

void *__real_calloc(size_t n, size_t bytes);
int __real_memfd_create(const char *name, unsigned flags);
int __real_ftruncate(int fd, off_t bytes);
int __real_posix_fallocate(int fd, off_t from, off_t bytes);
void *__real_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t from);
int __real_fcntl(int fd, int command, int argument);
ssize_t __real_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __real_recvmsg(int fd, struct msghdr *message, int flags);
int __real_poll(struct pollfd *fds, nfds_t n, int timeout);
uint64_t __real_kvpi_checksum(const uint8_t *bytes, size_t n_bytes);

void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes)
{
    return is_refused(CALLOC) ? NULL : __real_calloc(n, bytes);
}

int __wrap_memfd_create(const char *name, unsigned flags);
int __wrap_memfd_create(const char *name, unsigned flags)
{
    const int is_strict_flag = (flags & MFD_NOEXEC_SEAL) != 0;
    if (is_refused(MEMFD))
        errno = EMFILE;
    else if (memory_kind == OLD_MEMORY && is_strict_flag)
        errno = EINVAL;
    else if (memory_kind == STRICT_MEMORY && !is_strict_flag)
        errno = EACCES;
    else
        return __real_memfd_create(name, flags);
    return -1;
}

int __wrap_ftruncate(int fd, off_t bytes);
int __wrap_ftruncate(int fd, off_t bytes)
{
    return is_refused(TRUNCATE) ? -1 : __real_ftruncate(fd, bytes);
}

int __wrap_posix_fallocate(int fd, off_t from, off_t bytes);
int __wrap_posix_fallocate(int fd, off_t from, off_t bytes)
{
    return is_refused(ALLOCATE) ? 28 : __real_posix_fallocate(fd, from, bytes);
}

void *__wrap_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t from);
void *__wrap_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t from)
{
    return fd >= 0 && is_refused(MAP) ? MAP_FAILED : __real_mmap(at, bytes, prot, flags, fd, from);
}

int __wrap_fcntl(int fd, int command, int argument);
int __wrap_fcntl(int fd, int command, int argument)
{
    return is_refused(FCNTL) ? -1 : __real_fcntl(fd, command, argument);
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags)
{
    return is_refused(SENDMSG) ? -1 : __real_sendmsg(fd, message, flags);
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags)
{
    return is_refused(RECVMSG) ? 0 : __real_recvmsg(fd, message, flags);
}

uint64_t __wrap_kvpi_checksum(const uint8_t *bytes, size_t n_bytes);
uint64_t __wrap_kvpi_checksum(const uint8_t *bytes, size_t n_bytes)
{
    const uint64_t checksum = __real_kvpi_checksum(bytes, n_bytes);
    if (on_checksum && n_bytes > 400)
        on_checksum();
    return checksum;
}

int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout)
{
    assert_true(n == 1 && timeout == 0); /* nobody waits */
    if (on_poll)
        on_poll();
    return __real_poll(fds, n, timeout);
}

/* Descriptors that this process has open. */
static int n_open(void)
{
    DIR *open = opendir("/proc/self/fd");
    int n = 0;
    assert_non_null(open);
    while (readdir(open))
        n++;
    assert_int_equal(closedir(open), 0);
    return n;
}

/* Mappings of memory that is shared. */
static int n_mapped(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int n = 0;
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps))
        n += strstr(line, "memfd:") != NULL;
    assert_int_equal(fclose(maps), 0);
    return n;
}

/* ------------------------------------------------------------------------------- hostile peers */

/* One right end, and a socket and memory of a peer that does what it likes. */
typedef struct scene {
    int sockets[2], n_open, n_mapped, memory;
    kvp_shm *shm;
    kvp_link end;
    uint8_t *theirs; /* [their_bytes] the peer's memory, written by it */
    size_t their_bytes;
    uint8_t hello[HELLO];
} scene;

static scene make_scene(void)
{
    scene s = {.n_open = n_open(), .n_mapped = n_mapped(), .memory = -1};
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, s.sockets), 0);
    assert_ok(kvp_shm_open(s.sockets[0], MESSAGE, MESSAGES, &s.shm, NULL));
    memcpy(s.hello, "kvps\1", 5);
    kvpi_bytes_store(s.hello + 8, MESSAGE, 4);
    kvpi_bytes_store(s.hello + 12, MESSAGES, 4);
    kvpi_bytes_store(s.hello + 16, RING, 8);
    return s;
}

static void make_memory(scene *s, size_t bytes, int seals)
{
    s->memory = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(s->memory >= 0);
    assert_int_equal(ftruncate(s->memory, (off_t)bytes), 0);
    assert_int_equal(posix_fallocate(s->memory, 0, (off_t)bytes), 0);
    s->their_bytes = bytes;
    s->theirs = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, s->memory, 0);
    assert_ptr_not_equal(s->theirs, MAP_FAILED);
    assert_int_equal(fcntl(s->memory, F_ADD_SEALS, seals), 0);
}

static void say_hello(const scene *s, size_t n_bytes, int n_memories)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(9 * sizeof(int))];
    } beside = {0};
    struct iovec part = {(void *)(uintptr_t)s->hello, n_bytes};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (n_memories > 0) {
        const size_t n = (size_t)n_memories * sizeof(int);
        message.msg_control = beside.bytes;
        message.msg_controllen = CMSG_SPACE(n);
        struct cmsghdr *header = &beside.align;
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(n);
        for (int i = 0; i < n_memories && i < 9; i++)
            memcpy(beside.bytes + CMSG_LEN((size_t)i * sizeof(int)), &s->memory, sizeof(int));
    }
    assert_int_equal(sendmsg(s->sockets[1], &message, 0), n_bytes);
}

static void end_scene(scene *s)
{
    kvp_shm_close(s->shm);
    if (s->memory >= 0)
        assert_int_equal(close(s->memory), 0);
    if (s->theirs)
        assert_int_equal(munmap(s->theirs, s->their_bytes), 0);
    (void)close(s->sockets[0]);
    (void)close(s->sockets[1]);
    assert_int_equal(n_open(), s->n_open);
    assert_int_equal(n_mapped(), s->n_mapped);
}

#define scoped_scene ENDED_BY(end_scene) scene

static void expect_refusal(scene *s, kvp_status status, const char *text)
{
    kvp_why why;
    kvp_link untouched = s->end;
    assert_status(status, kvp_shm_connect(s->shm, &s->end, &why));
    assert_string_equal(why.field, "peer");
    assert_non_null(strstr(why.text, text));
    assert_memory_equal(&untouched, &s->end, sizeof untouched);
    /* It does not get better. */
    assert_status(status, kvp_shm_connect(s->shm, &s->end, NULL));
    end_scene(s);
}

static scene meet_hostile(void)
{
    scene s = make_scene();
    make_memory(&s, RING, SEALS);
    say_hello(&s, HELLO, 1);
    assert_ok(kvp_shm_connect(s.shm, &s.end, NULL));
    return s;
}

static void put(const scene *s, size_t at, uint64_t number)
{
    memcpy(s->theirs + at, &number, sizeof number);
}

/* --------------------------------------------------------------------------------------- tests */

/* A socket as to another machine, connected to itself. */
static int open_tcp(void)
{
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof own;
    const int tcp = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(tcp, (struct sockaddr *)&own, n), 0);
    assert_int_equal(getsockname(tcp, (struct sockaddr *)&own, &n), 0);
    assert_int_equal(connect(tcp, (struct sockaddr *)&own, n), 0);
    return tcp;
}

TEST(what_is_wrong_is_said)
{
    const int before = n_open();
    int sockets[2];
    kvp_shm *shm = NULL;
    kvp_link end;
    kvp_why why;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    const int other_machine = open_tcp();
    const int not_connected = socket(AF_UNIX, SOCK_STREAM, 0);
    const int wrong[] = {other_machine, not_connected, -1};
    for (int i = 0; i < 3; i++) {
        assert_status(KVP_E_ARG, kvp_shm_open(wrong[i], MESSAGE, 1, &shm, &why));
        assert_string_equal(why.field, "socket");
        assert_non_null(strstr(why.text, "another machine"));
    }
    const size_t messages[] = {KVP_LINK_MESSAGE_MIN - 1, ((size_t)1 << 30) + 1};
    for (int i = 0; i < 2; i++) {
        assert_status(KVP_E_ARG, kvp_shm_open(sockets[0], messages[i], 1, &shm, &why));
        assert_string_equal(why.field, "max_message");
        assert_true(why.lowest == KVP_LINK_MESSAGE_MIN && why.highest == 1 << 30);
    }
    const uint32_t numbers[] = {0, 65537};
    for (int i = 0; i < 2; i++) {
        assert_status(KVP_E_ARG, kvp_shm_open(sockets[0], MESSAGE, numbers[i], &shm, &why));
        assert_string_equal(why.field, "n_messages");
    }
    assert_status(KVP_E_ARG, kvp_shm_open(sockets[0], MESSAGE, 1, NULL, &why));
    assert_null(shm);
    assert_ok(kvp_shm_open(sockets[0], MESSAGE, 1, &shm, &why));
    assert_string_equal(why.field, "");
    assert_status(KVP_E_ARG, kvp_shm_connect(NULL, &end, NULL));
    assert_status(KVP_E_ARG, kvp_shm_connect(shm, NULL, NULL));
    assert_status(KVP_E_AGAIN, kvp_shm_connect(shm, &end, NULL));
    kvp_shm_close(shm);
    kvp_shm_close(NULL);
    assert_status(KVP_E_PEER, kvp_shm_open(sockets[1], MESSAGE, 1, &shm, &why));
    assert_non_null(strstr(why.text, "closed"));
    (void)close(sockets[0]);
    (void)close(sockets[1]);
    (void)close(other_machine);
    (void)close(not_connected);
    assert_int_equal(n_open(), before);
}

TEST(hellos_that_are_none)
{
    static const struct {
        size_t at;
        uint64_t value;
        unsigned n;
        kvp_status status;
        const char *text;
    } changes[] = {
        {0, 'K', 1, KVP_E_FORMAT, "no hello"},
        {4, 2, 1, KVP_E_VERSION, "version"},
        {8, KVP_LINK_MESSAGE_MIN - 1, 4, KVP_E_FORMAT, "form"},
        {8, (1u << 30) + 1, 4, KVP_E_FORMAT, "form"},
        {12, 0, 4, KVP_E_FORMAT, "form"},
        {12, 65537, 4, KVP_E_FORMAT, "form"},
        {16, RING - 1, 8, KVP_E_FORMAT, "form"},
        {16, UINT64_MAX, 8, KVP_E_FORMAT, "form"},
    };
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        scene s = make_scene();
        make_memory(&s, RING, SEALS);
        kvpi_bytes_store(s.hello + changes[i].at, changes[i].value, changes[i].n);
        say_hello(&s, HELLO, 1);
        expect_refusal(&s, changes[i].status, changes[i].text);
    }
    static const struct {
        size_t n_bytes;
        int n_memories;
    } wrong[] = {{HELLO, 0}, {HELLO, 2}, {HELLO, 3}, {HELLO, 9}, {HELLO - 1, 1}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        scene s = make_scene();
        make_memory(&s, RING, SEALS);
        say_hello(&s, wrong[i].n_bytes, wrong[i].n_memories);
        expect_refusal(&s, KVP_E_FORMAT, "no hello");
    }
    scene s = make_scene();
    assert_int_equal(shutdown(s.sockets[1], SHUT_RDWR), 0);
    errno = EAGAIN; /* of a call before */
    expect_refusal(&s, KVP_E_PEER, "gone");
}

/* A page that is not there, or not any more, would end the process that reads it. */
TEST(memory_that_can_be_taken_back)
{
    for (int bit = 0; bit < 5; bit++) {
        const int seal = 1 << bit;
        if (seal == F_SEAL_WRITE) /* not asked for */
            continue;
        scene s = make_scene();
        make_memory(&s, RING, SEALS & ~seal & ~F_SEAL_SEAL);
        if (seal != F_SEAL_SEAL) /* the others stay as they are */
            assert_int_equal(fcntl(s.memory, F_ADD_SEALS, F_SEAL_SEAL), 0);
        say_hello(&s, HELLO, 1);
        expect_refusal(&s, KVP_E_FORMAT, "not sealed");
    }
    for (int which = 0; which < 4; which++) {
        scene s = make_scene();
        if (which == 0) { /* shorter than it says */
            make_memory(&s, PAGE, SEALS);
        } else if (which == 1) { /* a page is missing */
            make_memory(&s, RING, 0);
            assert_int_equal(
                fallocate(s.memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, PAGE, PAGE), 0);
            assert_int_equal(fcntl(s.memory, F_ADD_SEALS, SEALS), 0);
        } else if (which == 2) { /* all of them are behind its end */
            s.memory = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);
            assert_int_equal(ftruncate(s.memory, RING), 0);
            assert_int_equal(fallocate(s.memory, FALLOC_FL_KEEP_SIZE, RING, RING), 0);
            assert_int_equal(fcntl(s.memory, F_ADD_SEALS, SEALS), 0);
        } else { /* a file */
            s.memory = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
        }
        say_hello(&s, HELLO, 1);
        expect_refusal(&s, KVP_E_FORMAT, "too small");
    }
}

/* Ours cannot be taken back either, nor written to. */
TEST(what_the_peer_gets)
{
    scoped_scene s = make_scene();
    uint8_t hello[HELLO];
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } beside;
    struct iovec part = {hello, sizeof hello};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = beside.bytes,
                             .msg_controllen = sizeof beside.bytes};
    assert_int_equal(recvmsg(s.sockets[1], &message, 0), HELLO);
    assert_memory_equal(hello, s.hello, HELLO);
    memcpy(&s.memory, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
    assert_ptr_equal(mmap(NULL, RING, PROT_READ | PROT_WRITE, MAP_SHARED, s.memory, 0), MAP_FAILED);
    assert_int_equal(ftruncate(s.memory, PAGE), -1);
    assert_int_equal(fallocate(s.memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE), -1);
    assert_int_equal(pwrite(s.memory, "x", 1, 0), -1);
}

/* Both ends of a pair, whole messages in order; room as much as was asked for. */
TEST(messages_go_round)
{
    int sockets[2];
    kvp_shm *shm[2];
    kvp_link ends[2], again;
    void *out;
    const void *in;
    size_t n;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    assert_ok(kvp_shm_open(sockets[0], 2000, 3, &shm[0], NULL));
    assert_ok(kvp_shm_open(sockets[1], 1024, 1, &shm[1], NULL));
    for (int i = 0; i < 2; i++) {
        assert_ok(kvp_shm_connect(shm[i], &ends[i], NULL));
        assert_status(KVP_E_STATE, kvp_shm_connect(shm[i], &again, NULL));
        (void)close(sockets[i]);
    }
    assert_int_equal(ends[0].max_message, 2000);
    assert_true(kvpi_shm_is_link(&ends[0])); /* its messages are written past the caches */
    assert_status(KVP_E_ARG, ends[0].lend(shm[0], 2001, &out));
    assert_status(KVP_E_ARG, ends[0].lend(shm[0], 0, &out));
    assert_status(KVP_E_ARG, ends[0].post(shm[0], 1));
    ends[1].give_back(shm[1]); /* of nothing */
    for (unsigned round = 0; round < 5; round++) {
        for (unsigned i = 0; i < 3; i++) {
            assert_ok(ends[0].lend(shm[0], 2000, &out));
            assert_int_equal((uintptr_t)out % 16, 0);
            memset(out, (int)(3 * round + i), 2000);
            assert_status(KVP_E_ARG, ends[0].post(shm[0], 2001));
            assert_ok(ends[0].post(shm[0], 2000 - round));
        }
        assert_status(KVP_E_AGAIN, ends[0].lend(shm[0], 1, &out));
        for (unsigned i = 0; i < 3; i++) {
            for (int twice = 0; twice < 2; twice++) {
                assert_ok(ends[1].take(shm[1], &in, &n));
                assert_int_equal(n, 2000 - round);
                assert_int_equal(*(const uint8_t *)in, 3 * round + i);
                assert_int_equal(((const uint8_t *)in)[n - 1], 3 * round + i);
            }
            assert_status(i == 0 ? KVP_E_AGAIN : KVP_OK, ends[0].lend(shm[0], 1, &out));
            ends[1].give_back(shm[1]);
            ends[1].give_back(shm[1]); /* once is enough */
        }
        assert_status(KVP_E_AGAIN, ends[1].take(shm[1], &in, &n));
    }
    /* What had arrived is taken, then it is over. */
    assert_ok(ends[0].lend(shm[0], 7, &out));
    assert_ok(ends[0].post(shm[0], 7));
    kvp_shm_close(shm[0]);
    assert_ok(ends[1].take(shm[1], &in, &n));
    assert_int_equal(n, 7);
    ends[1].give_back(shm[1]);
    assert_status(KVP_E_PEER, ends[1].take(shm[1], &in, &n));
    assert_status(KVP_E_PEER, ends[1].lend(shm[1], 7, &out));
    kvp_shm_close(shm[1]);
}

/* An end that is closed is gone for its peer, also while its owner still has the socket. */
TEST(a_socket_that_stays_open)
{
    scoped_scene s = meet_hostile();
    char byte;
    kvp_shm_close(s.shm);
    s.shm = NULL;
    while (recv(s.sockets[1], &byte, 1, MSG_DONTWAIT) > 0)
        ; /* its hello */
    assert_int_equal(recv(s.sockets[1], &byte, 1, MSG_DONTWAIT), 0);
}

TEST(counters_that_lie)
{
    const void *in;
    void *out;
    size_t n;
    static const uint64_t posted[] = {MESSAGES + 1, UINT64_MAX, (uint64_t)1 << 63};
    for (int i = 0; i < 3; i++) {
        scoped_scene s = meet_hostile();
        assert_ok(s.end.lend(s.end.context, 1, &out));
        put(&s, AT_LENGTH, 1);
        put(&s, 0, posted[i]);
        assert_status(KVP_E_IO, s.end.take(s.end.context, &in, &n));
        put(&s, 0, 0);
        assert_status(KVP_E_IO, s.end.take(s.end.context, &in, &n)); /* for good */
        assert_status(KVP_E_IO, s.end.lend(s.end.context, 1, &out));
        assert_status(KVP_E_IO, s.end.post(s.end.context, 1));
    }
    for (int i = 0; i < 2; i++) { /* taken: what was never posted; less than must be */
        scoped_scene s = meet_hostile();
        if (i == 0) {
            put(&s, AT_TAKEN, 1);
        } else {
            for (int k = 0; k < 3; k++) {
                put(&s, AT_TAKEN, (uint64_t)k);
                assert_ok(s.end.lend(s.end.context, 1, &out));
                assert_ok(s.end.post(s.end.context, 1));
            }
            put(&s, AT_TAKEN, 0);
        }
        assert_status(KVP_E_IO, s.end.lend(s.end.context, 1, &out));
    }
    static const uint64_t lengths[] = {0, MESSAGE + 1, UINT64_MAX};
    for (int i = 0; i < 3; i++) {
        scoped_scene s = meet_hostile();
        put(&s, AT_LENGTH, lengths[i]);
        put(&s, 0, 1);
        assert_status(KVP_E_IO, s.end.take(s.end.context, &in, &n));
        put(&s, AT_LENGTH, 1);
        assert_status(KVP_E_IO, s.end.take(s.end.context, &in, &n));
        put(&s, 0, 0);
        assert_int_equal(shutdown(s.sockets[1], SHUT_RDWR), 0);
        assert_status(KVP_E_IO, s.end.take(s.end.context, &in, &n)); /* the first reason stays */
    }
    /* A peer whose counter goes back has taken nothing of ours, and is found out. */
    scoped_scene s = meet_hostile();
    put(&s, AT_LENGTH, 1);
    put(&s, 0, 1);
    assert_ok(s.end.take(s.end.context, &in, &n));
    s.end.give_back(s.end.context);
    put(&s, 0, 0);
    assert_status(KVP_E_IO, s.end.take(s.end.context, &in, &n));
}

static const scene *dying;

/* A last message, then the end. */
static void post_and_go(void)
{
    put(dying, AT_LENGTH, 3);
    put(dying, 0, 1);
    assert_int_equal(shutdown(dying->sockets[1], SHUT_RDWR), 0);
    on_poll = NULL;
}

/* The peer posts when the ring was looked at, and is gone when the socket is. */
TEST(a_message_just_before_the_end)
{
    const void *in;
    size_t n;
    scoped_scene s = meet_hostile();
    dying = &s;
    on_poll = post_and_go;
    assert_ok(s.end.take(s.end.context, &in, &n));
    assert_int_equal(n, 3);
    s.end.give_back(s.end.context);
    assert_status(KVP_E_PEER, s.end.take(s.end.context, &in, &n));
}

/* Any bytes in the peer's memory, at any time: a receiver and its cache are none the worse. */
TEST(a_peer_that_writes_anything)
{
    uint64_t random = 5;
    uint32_t n_taken = 0, n_broken = 0;
    const place_shape shape = small_place();
    scoped_pair p = make_pair(&shape, &shape, 2);
    open_both(&p, 9, 0);
    reserve(&p);
    watch_place(&p.b);
    for (int i = 0; i < 2000; i++) {
        scoped_scene s = meet_hostile();
        uint32_t link;
        assert_ok(kvp_receiver_attach(p.receiver, &s.end, &link));
        kvp_receiver_stats before, after;
        assert_ok(kvp_receiver_stats_get(p.receiver, &before));
        for (uint64_t posted = 1; posted < 6; posted++) {
            for (int k = 0; k < 8; k++)
                put(&s,
                    draw(&random, 2) ? AT_BYTES + 8 * draw(&random, STRIDE / 4)
                                     : 8 * draw(&random, RING / 8),
                    draw(&random, 2) ? draw(&random, 2000)
                                     : (uint64_t)draw(&random, 1u << 31) << 33);
            for (int m = 0; m < MESSAGES && draw(&random, 8) > 0; m++)
                put(&s, AT_LENGTH + (size_t)m * STRIDE, 1 + draw(&random, MESSAGE));
            if (draw(&random, 8) > 0)
                put(&s, 0, posted);
            assert_ok(kvp_receiver_progress(p.receiver, 0, NULL));
        }
        assert_ok(kvp_receiver_stats_get(p.receiver, &after));
        n_taken += after.messages > before.messages;
        n_broken += kvp_receiver_link(p.receiver, link) == KVP_E_IO;
        assert_ok(kvp_receiver_detach(p.receiver, link));
    }
    assert_true(n_taken > 500 && n_broken > 100);
    assert_int_equal(info_b(&p).state, KVP_TRANSFER_WAITING);
    assert_nothing_else_changed(&p.b, p.seq_b, (kvp_range){0, 0});
    assert_ok(kvp_receiver_abort(p.receiver, p.id_b, KVP_E_PEER));
    assert_ok(kvp_receiver_close(p.receiver, p.id_b));
}

/* ------------------------------------------------------------- KV that changes while it is read */

static uint8_t *changing; /* [RING] */

/* Where the KV goes, and who sends it, become something else. */
static void change_front(void)
{
    memset(changing + AT_BYTES + 8, 0xFF, 72);
    memset(changing + AT_BYTES + STRIDE + 8, 0xFF, 72);
}

TEST(a_message_that_changes_when_it_is_verified)
{
    const place_shape shape = small_place();
    scoped_pair p = make_pair(&shape, &shape, 2);
    scoped_scene s = meet_hostile();
    const void *in;
    size_t n;
    uint32_t link;
    open_both(&p, 16, 0);
    prefill(&p, (kvp_range){0, 16});
    assert_ok(kvp_receiver_detach(p.receiver, p.link_b));
    assert_ok(kvp_receiver_attach(p.receiver, &s.end, &link));
    reserve(&p);
    mark(&p);
    watch_place(&p.b);
    changing = s.theirs;
    on_checksum = NULL;
    uint64_t posted = 0;
    /* What the sender says goes to the receiver by the hostile peer. */
    for (int round = 0; round < 20; round++) {
        assert_ok(kvp_sender_progress(p.sender, NULL));
        while (p.ends[1].take(p.ends[1].context, &in, &n) == KVP_OK) {
            memcpy(s.theirs + AT_BYTES + posted % MESSAGES * STRIDE, in, n);
            put(&s, AT_LENGTH + posted % MESSAGES * STRIDE, n);
            put(&s, 0, ++posted);
            p.ends[1].give_back(p.ends[1].context);
            on_checksum = n > 512 ? change_front : NULL;
            assert_ok(kvp_receiver_progress(p.receiver, 0, NULL));
            on_checksum = NULL;
        }
    }
    assert_true(posted >= 4);
    assert_int_equal(info_b(&p).state, KVP_TRANSFER_COMPLETE);
    assert_true(has_kv(&p.b, p.seq_b, (kvp_range){0, 16}));
    assert_nothing_else_changed(&p.b, p.seq_b, (kvp_range){0, 16});
    assert_ok(kvp_sender_abort(p.sender, p.id_a, KVP_E_PEER));
    assert_ok(kvp_sender_close(p.sender, p.id_a));
    assert_ok(kvp_receiver_close(p.receiver, p.id_b));
    assert_ok(kvp_receiver_detach(p.receiver, link));
}

/* ------------------------------------------------------------------------- the system refuses */

TEST(the_nth_call_is_refused)
{
    for (int call = CALLOC; call < CALLS; call++) {
        kvp_status status = KVP_E_NO_MEMORY;
        uint32_t n_refused = 0;
        for (uint32_t nth = 1; status != KVP_OK; nth++) {
            const int before = n_open(), mapped = n_mapped();
            int sockets[2];
            kvp_shm *shm[2] = {NULL, NULL};
            kvp_link end;
            assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets), 0);
            assert_ok(kvp_shm_open(sockets[1], MESSAGE, 1, &shm[1], NULL));
            refused = call;
            refused_nth = nth;
            n_called = 0;
            status = kvp_shm_open(sockets[0], MESSAGE, 1, &shm[0], NULL);
            assert_true((status == KVP_OK) == (shm[0] != NULL));
            if (status == KVP_OK)
                status = kvp_shm_connect(shm[0], &end, NULL);
            refused = NOTHING;
            assert_true(status == KVP_OK || status == KVP_E_NO_MEMORY || status == KVP_E_IO ||
                        status == KVP_E_PEER || status == KVP_E_FORMAT);
            n_refused += status != KVP_OK;
            kvp_shm_close(shm[0]);
            kvp_shm_close(shm[1]);
            (void)close(sockets[0]);
            (void)close(sockets[1]);
            assert_int_equal(n_open(), before);
            assert_int_equal(n_mapped(), mapped);
        }
        assert_true(n_refused >= (call == FCNTL ? 3u : call == MAP ? 2u : 1u));
    }
}

/* Two ends, as systems make memory, on sockets that add to messages who sent them. */
TEST(systems_differ)
{
    for (memory_kind = OLD_MEMORY; memory_kind != ANY_MEMORY; memory_kind--) {
        const int before = n_open(), yes = 1;
        int sockets[2];
        kvp_shm *shm[2] = {NULL, NULL};
        kvp_link end;
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets), 0);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(setsockopt(sockets[i], SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes), 0);
            assert_ok(kvp_shm_open(sockets[i], MESSAGE, 1, &shm[i], NULL));
        }
        for (int i = 0; i < 2; i++)
            assert_ok(kvp_shm_connect(shm[i], &end, NULL));
        for (int i = 0; i < 2; i++) {
            kvp_shm_close(shm[i]);
            (void)close(sockets[i]);
        }
        assert_int_equal(n_open(), before);
    }
}

/* A peer that is killed while it works: what it had posted arrives, then the link is broken. */
TEST(a_peer_that_is_killed)
{
    int sockets[2];
    kvp_shm *shm;
    kvp_link end;
    void *out;
    const void *in;
    size_t n;
    kvp_status status;
    uint32_t n_taken = 0;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets), 0);
    const pid_t peer = fork();
    assert_true(peer >= 0);
    if (peer == 0) {
        (void)close(sockets[0]);
        if (kvp_shm_open(sockets[1], MESSAGE, 8, &shm, NULL) != KVP_OK)
            _exit(1);
        while ((status = kvp_shm_connect(shm, &end, NULL)) == KVP_E_AGAIN)
            (void)usleep(0);
        for (int i = 0; i < 5 && status == KVP_OK; i++) {
            status = end.lend(shm, MESSAGE, &out);
            if (status == KVP_OK)
                status = end.post(shm, MESSAGE);
        }
        (void)raise(SIGKILL);
    }
    (void)close(sockets[1]);
    assert_ok(kvp_shm_open(sockets[0], MESSAGE, 8, &shm, NULL));
    while ((status = kvp_shm_connect(shm, &end, NULL)) == KVP_E_AGAIN)
        (void)usleep(0);
    assert_ok(status);
    while ((status = end.take(shm, &in, &n)) == KVP_OK || status == KVP_E_AGAIN) {
        if (status == KVP_OK) {
            n_taken++;
            end.give_back(shm);
        }
    }
    assert_status(KVP_E_PEER, status);
    assert_int_equal(n_taken, 5);
    assert_int_equal(waitpid(peer, NULL, 0), peer);
    kvp_shm_close(shm);
    (void)close(sockets[0]);
}

/* The system has no such memory: 1, and it says so. */
static int is_missing(void)
{
    int sockets[2];
    kvp_shm *shm = NULL;
    kvp_why why;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets), 0);
    const kvp_status status = kvp_shm_open(sockets[0], MESSAGE, 1, &shm, &why);
    if (status == KVP_E_IO)
        assert_non_null(strstr(why.text, "Linux"));
    kvp_shm_close(shm);
    (void)close(sockets[0]);
    (void)close(sockets[1]);
    return status == KVP_E_IO;
}

int main(void)
{
    if (is_missing()) {
        printf("skipped: no sealed memory here\n");
        return 77;
    }
    return run_all_tests(NULL, NULL);
}
