/* Links over a stream socket: messages in pieces of every length, buffers that are full, peers that
 * go and peers that lie, and what the system refuses. */
#define _GNU_SOURCE

#include "transfer_world.h"

#include "base/bytes.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MESSAGE = KVP_LINK_MESSAGE_MIN, HELLO = 16 };

/* ------------------------------------------------------------------------ what the system gives */

static uint32_t refused_nth; /* allocation, from 1; 0: none */
static size_t most_moved;    /* bytes a call of the system's moves; 0: as many as it wants to */
static int refuses_fcntl;
static int breaks_send;
static int interrupts; /* every other call of the system's */

void *__real_calloc(size_t n, size_t bytes);
void *__real_malloc(size_t bytes);
int __real_fcntl(int fd, int command, int argument);
ssize_t __real_send(int fd, const void *bytes, size_t n, int flags);
ssize_t __real_recv(int fd, void *bytes, size_t n, int flags);

static int is_refused(void)
{
    return refused_nth > 0 && --refused_nth == 0;
}

void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes)
{
    return is_refused() ? NULL : __real_calloc(n, bytes);
}

void *__wrap_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes)
{
    return is_refused() ? NULL : __real_malloc(bytes);
}

int __wrap_fcntl(int fd, int command, int argument);
int __wrap_fcntl(int fd, int command, int argument)
{
    return refuses_fcntl ? -1 : __real_fcntl(fd, command, argument);
}

static int is_interrupted(void)
{
    errno = EINTR;
    return interrupts && interrupts++ % 2;
}

static size_t cut(size_t n)
{
    return most_moved > 0 && n > most_moved ? most_moved : n;
}

ssize_t __wrap_send(int fd, const void *bytes, size_t n, int flags);
ssize_t __wrap_send(int fd, const void *bytes, size_t n, int flags)
{
    if (breaks_send) {
        errno = EPIPE;
        return -1;
    }
    return is_interrupted() ? -1 : __real_send(fd, bytes, cut(n), flags);
}

ssize_t __wrap_recv(int fd, void *bytes, size_t n, int flags);
ssize_t __wrap_recv(int fd, void *bytes, size_t n, int flags)
{
    return is_interrupted() ? -1 : __real_recv(fd, bytes, cut(n), flags);
}

/* --------------------------------------------------------------------------------------- scenes */

typedef struct scene {
    int sockets[2];
    kvp_tcp *tcp[2];
    kvp_link ends[2];
} scene;

static kvp_status connect_end(scene *s, int i)
{
    kvp_status status;
    while ((status = kvp_tcp_connect(s->tcp[i], &s->ends[i], NULL)) == KVP_E_AGAIN)
        ;
    return status;
}

static scene make_scene(size_t max_a, size_t max_b, uint32_t n_messages)
{
    scene s = {0};
    make_tcp_pair(s.sockets);
    assert_ok(kvp_tcp_open(s.sockets[0], max_a, n_messages, &s.tcp[0], NULL));
    assert_ok(kvp_tcp_open(s.sockets[1], max_b, n_messages, &s.tcp[1], NULL));
    assert_ok(connect_end(&s, 0));
    assert_ok(connect_end(&s, 1));
    return s;
}

static void end_scene(scene *s)
{
    for (int i = 0; i < 2; i++) {
        kvp_tcp_close(s->tcp[i]);
        (void)close(s->sockets[i]);
    }
}

#define scoped_scene ENDED_BY(end_scene) scene

static kvp_status post(const kvp_link *end, size_t n, unsigned seed)
{
    void *out;
    kvp_status status = end->lend(end->context, n, &out);
    if (status != KVP_OK)
        return status;
    assert_int_equal((uintptr_t)out % 16, 0);
    for (size_t i = 0; i < n; i++)
        ((uint8_t *)out)[i] = (uint8_t)(seed + i);
    return end->post(end->context, n);
}

static void expect(const kvp_link *end, size_t n, unsigned seed)
{
    const void *in;
    size_t n_bytes;
    kvp_status status;
    while ((status = end->take(end->context, &in, &n_bytes)) == KVP_E_AGAIN)
        ;
    assert_ok(status);
    assert_int_equal(n_bytes, n);
    assert_int_equal((uintptr_t)in % 16, 0);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(((const uint8_t *)in)[i], (uint8_t)(seed + i));
    end->give_back(end->context);
}

/* ---------------------------------------------------------------------------------------- tests */

TEST(messages_in_pieces)
{
    static const size_t pieces[] = {0, 1, 3, 5, 1000};
    for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
        most_moved = 0; /* a hello goes as one */
        scoped_scene s = make_scene(3000, 2000, 3);
        assert_int_equal(s.ends[0].max_message, 2000);
        assert_int_equal(s.ends[1].max_message, 2000);
        most_moved = pieces[p];
        interrupts = p % 2 ? 1 : 0;
        for (unsigned round = 0; round < 20; round++) {
            const size_t n = round % 4 == 0 ? 2000 : 1 + 7 * round;
            for (unsigned i = 0; i < 2; i++) {
                kvp_status status;
                while ((status = post(&s.ends[i], n, round + i)) == KVP_E_AGAIN)
                    s.ends[i].progress(s.ends[i].context);
                assert_ok(status);
            }
            for (unsigned i = 0; i < 2; i++) {
                while (kvp_tcp_flush(s.tcp[i]) == KVP_E_AGAIN)
                    s.ends[1 - i].progress(s.ends[1 - i].context);
                expect(&s.ends[1 - i], n, round + i);
            }
        }
        most_moved = 0;
        interrupts = 0;
    }
}

TEST(arguments)
{
    scoped_scene s = make_scene(MESSAGE, MESSAGE, 1);
    kvp_link again;
    kvp_tcp *tcp;
    kvp_why why;
    void *out;
    int two[2];
    assert_status(KVP_E_STATE, kvp_tcp_connect(s.tcp[0], &again, NULL));
    assert_status(KVP_E_ARG, kvp_tcp_connect(NULL, &again, NULL));
    assert_status(KVP_E_ARG, kvp_tcp_connect(s.tcp[0], NULL, NULL));
    assert_status(KVP_E_ARG, kvp_tcp_flush(NULL));
    assert_status(KVP_E_ARG, kvp_tcp_open(s.sockets[0], MESSAGE - 1, 1, &tcp, &why));
    assert_string_equal(why.field, "max_message");
    assert_status(KVP_E_ARG, kvp_tcp_open(s.sockets[0], (1u << 30) + 1, 1, &tcp, NULL));
    assert_status(KVP_E_ARG, kvp_tcp_open(s.sockets[0], MESSAGE, 0, &tcp, NULL));
    assert_status(KVP_E_ARG, kvp_tcp_open(s.sockets[0], MESSAGE, 65537, &tcp, &why));
    assert_string_equal(why.field, "n_messages");
    assert_status(KVP_E_ARG, kvp_tcp_open(s.sockets[0], MESSAGE, 1, NULL, NULL));
    assert_status(KVP_E_ARG, kvp_tcp_open(-1, MESSAGE, 1, &tcp, &why));
    assert_string_equal(why.field, "socket");
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, two), 0);
    assert_status(KVP_E_ARG, kvp_tcp_open(two[0], MESSAGE, 1, &tcp, NULL));
    (void)close(two[0]);
    (void)close(two[1]);
    const int lonely = socket(AF_INET, SOCK_STREAM, 0);
    assert_status(KVP_E_ARG, kvp_tcp_open(lonely, MESSAGE, 1, &tcp, &why));
    assert_string_equal(why.field, "socket");
    (void)close(lonely);
    for (uint32_t n = 1; n <= 65536; n += 65535) {
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, two), 0);
        assert_ok(kvp_tcp_open(two[0], MESSAGE, n, &tcp, &why));
        assert_string_equal(why.field, "");
        kvp_tcp_close(tcp);
        (void)close(two[0]);
        (void)close(two[1]);
    }
    const kvp_link *end = &s.ends[0];
    assert_status(KVP_E_ARG, end->lend(end->context, 0, &out));
    assert_status(KVP_E_ARG, end->lend(end->context, MESSAGE + 1, &out));
    assert_status(KVP_E_ARG, end->post(end->context, 1));
    assert_ok(end->lend(end->context, 5, &out));
    assert_status(KVP_E_ARG, end->post(end->context, 6));
    assert_status(KVP_E_ARG, end->post(end->context, 0));
    assert_ok(end->post(end->context, 5));
    end->give_back(end->context); /* of nothing */
    kvp_tcp_close(NULL);
}

/* Nobody reads: at some time the system takes no more, then the buffers are full. */
TEST(full_buffers)
{
    scoped_scene s = make_scene(1 << 20, 1 << 20, 2);
    unsigned n = 0, taken = 0;
    kvp_status status;
    while ((status = post(&s.ends[0], 1 << 20, n)) == KVP_OK)
        n++;
    assert_status(KVP_E_AGAIN, status);
    assert_status(KVP_E_AGAIN, kvp_tcp_flush(s.tcp[0]));
    for (; taken < n; taken++) {
        s.ends[0].progress(s.ends[0].context);
        const void *in;
        size_t n_bytes;
        while ((status = s.ends[1].take(s.ends[1].context, &in, &n_bytes)) == KVP_E_AGAIN)
            s.ends[0].progress(s.ends[0].context);
        assert_ok(status);
        assert_int_equal(((const uint8_t *)in)[7], (uint8_t)(taken + 7));
        s.ends[1].give_back(s.ends[1].context);
    }
    while ((status = kvp_tcp_flush(s.tcp[0])) == KVP_E_AGAIN)
        ;
    assert_ok(status);
    /* A buffer is lent again when the peer has taken something: nobody has to call progress. */
    while ((status = post(&s.ends[0], 1 << 20, 0)) == KVP_OK)
        ;
    for (unsigned i = 0; i < 1000000 && status == KVP_E_AGAIN; i++) {
        const void *in;
        void *out;
        size_t n_bytes;
        if (s.ends[1].take(s.ends[1].context, &in, &n_bytes) == KVP_OK)
            s.ends[1].give_back(s.ends[1].context);
        status = s.ends[0].lend(s.ends[0].context, 1, &out);
    }
    assert_ok(status);
}

/* What was given back once is not given back again: the message behind it stays. */
TEST(given_back_twice)
{
    scoped_scene s = make_scene(MESSAGE, MESSAGE, 4);
    for (unsigned i = 0; i < 3; i++)
        assert_ok(post(&s.ends[0], 10, i));
    for (unsigned i = 0; i < 3; i++) {
        s.ends[1].give_back(s.ends[1].context);
        expect(&s.ends[1], 10, i);
        s.ends[1].give_back(s.ends[1].context);
    }
}

/* A link that is broken says why it broke, whatever comes behind that. */
TEST(the_first_reason_stays)
{
    scoped_scene s = make_scene(MESSAGE, MESSAGE, 4);
    const uint8_t bytes[12] = {4, 0, 0, 0, 9, 10, 11, 12}; /* a message, and one of no length */
    const void *in;
    size_t n;
    kvp_status status;
    assert_int_equal(send(s.sockets[0], bytes, sizeof bytes, 0), sizeof bytes);
    breaks_send = 1;
    assert_status(KVP_E_PEER, post(&s.ends[1], 4, 0));
    expect(&s.ends[1], 4, 9);
    while ((status = s.ends[1].take(s.ends[1].context, &in, &n)) == KVP_E_AGAIN)
        ;
    assert_status(KVP_E_PEER, status);
    assert_status(KVP_E_PEER, kvp_tcp_flush(s.tcp[1]));
    breaks_send = 0;
}

/* What had arrived is taken; then the link is broken, and stays so. */
TEST(peer_that_goes)
{
    scoped_scene s = make_scene(MESSAGE, MESSAGE, 4);
    void *out;
    assert_ok(post(&s.ends[0], 100, 1));
    assert_ok(post(&s.ends[0], 200, 2));
    while (kvp_tcp_flush(s.tcp[0]) == KVP_E_AGAIN)
        ;
    assert_ok(post(&s.ends[1], 50, 3)); /* nobody will take it */
    kvp_tcp_close(s.tcp[0]);
    s.tcp[0] = NULL;
    (void)close(s.sockets[0]);
    s.sockets[0] = -1;
    expect(&s.ends[1], 100, 1);
    expect(&s.ends[1], 200, 2);
    const void *in;
    size_t n;
    kvp_status status;
    while ((status = s.ends[1].take(s.ends[1].context, &in, &n)) == KVP_E_AGAIN)
        ;
    assert_status(KVP_E_PEER, status);
    assert_status(KVP_E_PEER, s.ends[1].lend(s.ends[1].context, 5, &out));
    assert_status(KVP_E_PEER, kvp_tcp_flush(s.tcp[1]));
    assert_status(KVP_E_PEER, s.ends[1].take(s.ends[1].context, &in, &n));
}

/* An end that is closed is gone for its peer, also while its owner still has the socket. */
TEST(a_socket_that_stays_open)
{
    scoped_scene s = make_scene(MESSAGE, MESSAGE, 4);
    const void *in;
    size_t n;
    kvp_status status;
    kvp_tcp_close(s.tcp[0]);
    s.tcp[0] = NULL;
    while ((status = s.ends[1].take(s.ends[1].context, &in, &n)) == KVP_E_AGAIN)
        ;
    assert_status(KVP_E_PEER, status);
}

/* A process without standard input: descriptor 0 is one like the others. */
TEST(descriptor_0)
{
    scene s = {0};
    if (fcntl(0, F_GETFD) < 0)
        assert_int_equal(open("/dev/null", O_RDONLY), 0);
    const int kept = dup(0);
    make_tcp_pair(s.sockets);
    (void)close(0);
    for (int i = 0; i < 2; i++)
        assert_ok(kvp_tcp_open(s.sockets[i], MESSAGE, 1, &s.tcp[i], NULL));
    for (int i = 0; i < 2; i++)
        assert_ok(connect_end(&s, i));
    assert_ok(post(&s.ends[0], 100, 1));
    expect(&s.ends[1], 100, 1);
    end_scene(&s);
    assert_int_equal(fcntl(0, F_GETFD), -1);
    assert_int_equal(dup2(kept, 0), 0);
    (void)close(kept);
}

/* The system had taken everything, and the peer's had not. */
TEST(peer_that_goes_before_it_has_all)
{
    const int options[2][2] = {{SO_SNDBUF, 1 << 22}, {SO_RCVBUF, 4096}};
    uint8_t hello[HELLO] = {'k', 'v', 'p', 't', 1};
    scoped_scene s = {0};
    make_tcp_pair(s.sockets);
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            setsockopt(s.sockets[i], SOL_SOCKET, options[i][0], &options[i][1], sizeof(int)), 0);
    kvpi_bytes_store(hello + 8, 1 << 20, 4);
    assert_int_equal(send(s.sockets[1], hello, HELLO, 0), HELLO);
    assert_ok(kvp_tcp_open(s.sockets[0], 1 << 20, 2, &s.tcp[0], NULL));
    assert_ok(connect_end(&s, 0));
    assert_ok(post(&s.ends[0], 1 << 20, 1));
    assert_status(KVP_E_AGAIN, kvp_tcp_flush(s.tcp[0]));
    (void)close(s.sockets[1]); /* with bytes that it has not read */
    s.sockets[1] = -1;
    kvp_status status;
    while ((status = kvp_tcp_flush(s.tcp[0])) == KVP_E_AGAIN)
        (void)sched_yield();
    assert_status(KVP_E_PEER, status);
}

/* A whole message of a peer, then a length that is none. */
TEST(peer_that_lies)
{
    static const uint32_t lengths[] = {0, MESSAGE + 1, UINT32_MAX};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        scoped_scene s = make_scene(MESSAGE, MESSAGE, 4);
        uint8_t bytes[12] = {4, 0, 0, 0, 9, 10, 11, 12};
        kvpi_bytes_store(bytes + 8, lengths[i], 4);
        assert_int_equal(send(s.sockets[0], bytes, sizeof bytes, 0), sizeof bytes);
        expect(&s.ends[1], 4, 9);
        const void *in;
        size_t n;
        kvp_status status;
        while ((status = s.ends[1].take(s.ends[1].context, &in, &n)) == KVP_E_AGAIN)
            ;
        assert_status(KVP_E_IO, status);
        assert_status(KVP_E_IO, post(&s.ends[1], 4, 0));
    }
}

TEST(hellos)
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
        {8, MESSAGE - 1, 4, KVP_E_FORMAT, "too small"},
        {8, 0, 4, KVP_E_FORMAT, "too small"},
    };
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        scoped_scene s = {0};
        uint8_t hello[HELLO] = {'k', 'v', 'p', 't', 1};
        kvp_why why;
        make_tcp_pair(s.sockets);
        assert_ok(kvp_tcp_open(s.sockets[0], MESSAGE, 1, &s.tcp[0], NULL));
        assert_status(KVP_E_STATE, kvp_tcp_flush(s.tcp[0]));
        kvpi_bytes_store(hello + 8, MESSAGE, 4);
        kvpi_bytes_store(hello + changes[i].at, changes[i].value, changes[i].n);
        assert_int_equal(send(s.sockets[1], hello, 7, 0), 7); /* in two parts */
        assert_status(KVP_E_AGAIN, kvp_tcp_connect(s.tcp[0], &s.ends[0], NULL));
        assert_int_equal(send(s.sockets[1], hello + 7, HELLO - 7, 0), HELLO - 7);
        kvp_status status;
        while ((status = kvp_tcp_connect(s.tcp[0], &s.ends[0], &why)) == KVP_E_AGAIN)
            ;
        assert_status(changes[i].status, status);
        assert_non_null(strstr(why.text, changes[i].text));
        assert_status(status, kvp_tcp_connect(s.tcp[0], &s.ends[0], NULL));
    }
    scoped_scene s = {0};
    make_tcp_pair(s.sockets);
    assert_ok(kvp_tcp_open(s.sockets[0], MESSAGE, 1, &s.tcp[0], NULL));
    (void)close(s.sockets[1]);
    s.sockets[1] = -1;
    assert_status(KVP_E_PEER, connect_end(&s, 0));
}

TEST(what_the_system_refuses)
{
    int sockets[2];
    kvp_tcp *tcp = NULL;
    make_tcp_pair(sockets);
    for (uint32_t nth = 1; nth <= 2; nth++) {
        refused_nth = nth;
        assert_status(KVP_E_NO_MEMORY, kvp_tcp_open(sockets[0], MESSAGE, 1, &tcp, NULL));
        assert_int_equal(refused_nth, 0);
    }
    refuses_fcntl = 1;
    assert_status(KVP_E_IO, kvp_tcp_open(sockets[0], MESSAGE, 1, &tcp, NULL));
    refuses_fcntl = 0;
    most_moved = HELLO - 1; /* the socket is full of somebody's bytes */
    assert_status(KVP_E_PEER, kvp_tcp_open(sockets[0], MESSAGE, 1, &tcp, NULL));
    most_moved = 0;
    assert_null(tcp);
    (void)close(sockets[0]);
    (void)close(sockets[1]);
}

TEST_MAIN(NULL, NULL)
