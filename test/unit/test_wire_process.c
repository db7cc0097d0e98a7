/* The scheduler and its worker as two processes, with a socket between them: the worker answers
 * each message with a sum of all it knows, which must be the sum of what the cache holds. */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "wire_drive.h"

#if KVP_CHECK >= 1
enum { STEPS = 20000 };
#else
enum { STEPS = 100000 };
#endif

struct answer {
    int64_t status; /* of apply */
    uint64_t sum;   /* of the state after it */
};

/* Gives 0 at the end of the stream. */
static int read_all(int fd, void *bytes, size_t n_bytes)
{
    char *at = bytes;
    while (n_bytes > 0) {
        ssize_t n = read(fd, at, n_bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return 0;
        at += n;
        n_bytes -= (size_t)n;
    }
    return 1;
}

static int write_all(int fd, const void *bytes, size_t n_bytes)
{
    const char *at = bytes;
    while (n_bytes > 0) {
        ssize_t n = send(fd, at, n_bytes, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return 0;
        at += n;
        n_bytes -= (size_t)n;
    }
    return 1;
}

/* ---------------------------------------------------------------------------------- the worker */

/* Gives the exit status: 0 when the scheduler hung up between two messages. */
static int work(int fd, const kvp_wire_config *config)
{
    static uint8_t bytes[DRIVE_BYTES];
    kvp_wire_mirror *mirror;
    if (kvp_wire_mirror_create(config, NULL, 0, &mirror) != KVP_OK)
        return 2;
    while (read_all(fd, bytes, KVP_WIRE_HEAD_BYTES)) {
        kvp_wire_head head;
        struct answer answer;
        if (kvp_wire_peek(bytes, KVP_WIRE_HEAD_BYTES, &head) != KVP_OK ||
            head.n_bytes > sizeof bytes ||
            !read_all(fd, bytes + KVP_WIRE_HEAD_BYTES, head.n_bytes - KVP_WIRE_HEAD_BYTES))
            return 3;
        answer.status = kvp_wire_mirror_apply(mirror, bytes, head.n_bytes, NULL);
        answer.sum = drive_sum_mirror(mirror, config);
        if (!write_all(fd, &answer, sizeof answer))
            return 4;
    }
    kvp_wire_mirror_destroy(mirror);
    return 0;
}

/* ------------------------------------------------------------------------------- the scheduler */

struct worker {
    pid_t pid;
    int fd;
};

static struct worker start_worker(const kvp_wire_config *config)
{
    struct worker worker;
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    fflush(NULL);
    worker.pid = fork();
    assert_true(worker.pid >= 0);
    if (worker.pid == 0) {
        close(fds[0]);
        _exit(work(fds[1], config));
    }
    close(fds[1]);
    worker.fd = fds[0];
    return worker;
}

static void stop_worker(struct worker *worker)
{
    int status;
    close(worker->fd);
    assert_int_equal(waitpid(worker->pid, &status, 0), worker->pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static struct answer tell(const struct worker *worker, const driver *d)
{
    struct answer answer;
    assert_true(write_all(worker->fd, d->bytes, d->n_bytes));
    assert_true(read_all(worker->fd, &answer, sizeof answer));
    return answer;
}

static void expect(struct answer answer, kvp_status status, uint64_t sum)
{
    assert_int_equal(answer.status, status);
    assert_int_equal(answer.sum, sum);
}

/* A worker that comes late refuses a step, takes a full message, and is a worker as any other. */
static void replace_worker(struct worker *worker, driver *d)
{
    stop_worker(worker);
    *worker = start_worker(&d->config);
    drive_change(d);
    drive_message(d, 0);
    expect(tell(worker, d), KVP_E_STATE, 1);
    drive_message(d, 1);
    expect(tell(worker, d), KVP_OK, drive_sum_cache(d));
}

static void run(void (*drive)(driver *, uint64_t), uint32_t n_steps)
{
    static driver d;
    uint64_t sum = 0;
    drive(&d, 20);
    struct worker worker = start_worker(&d.config);
    for (uint32_t step = 0; step < n_steps; step++) {
        drive_change(&d);
        drive_message(&d, draw(&d.random, 100) == 0);
        sum = drive_sum_cache(&d);
        expect(tell(&worker, &d), KVP_OK, sum);
        if (draw(&d.random, 64) == 0)
            expect(tell(&worker, &d), KVP_E_STATE, sum);
        if (draw(&d.random, 1000) == 0)
            replace_worker(&worker, &d);
    }
    stop_worker(&worker);
    for (uint32_t kind = 0; kind < 16; kind++)
        assert_true(d.n_changes[kind] > 0); /* each of them did happen */
    drive_end(&d);
}

TEST(two_processes)
{
    run(drive_begin, STEPS);
}

TEST(two_processes_with_recurrent_state)
{
    run(drive_begin_states, STEPS / 10);
}

TEST_MAIN(NULL, NULL)
