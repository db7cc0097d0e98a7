/* A real redis-server on a free port of the loopback interface, without files. */
#ifndef KVP_TEST_REDIS_REAL_SERVER_H
#define KVP_TEST_REDIS_REAL_SERVER_H

#include <arpa/inet.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <valkey/valkey.h>

struct real_server {
    pid_t pid;
    int port;
    char url[100];
};

static inline int free_port(void)
{
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof address;
    assert_int_equal(bind(fd, (struct sockaddr *)&address, n), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &n), 0);
    close(fd);
    return ntohs(address.sin_port);
}

/* Debian's redis-tools has the server, too: one program, which looks at the name it is called by.
 * NULL: there is none. */
static inline const char *redis_program(void)
{
    static const char *const names[] = {"redis-server", "redis-check-rdb"};
    for (unsigned i = 0; i < 2; i++) {
        char command[64];
        snprintf(command, sizeof command, "command -v %s >/dev/null", names[i]);
        if (system(command) == 0)
            return names[i];
    }
    return NULL;
}

/* 0: it ended at once, for example because somebody has taken the port. */
static inline int wait_for_server(struct real_server *server)
{
    for (int i = 0; i < 1000; i++) {
        valkeyContext *context = valkeyConnect("127.0.0.1", server->port);
        const int good = context && !context->err;
        valkeyReply *reply = good ? valkeyCommand(context, "PING") : NULL;
        const int answers = reply != NULL;
        if (reply)
            freeReplyObject(reply);
        if (context)
            valkeyFree(context);
        if (answers)
            return 1;
        if (waitpid(server->pid, NULL, WNOHANG) != 0)
            return 0;
        poll(NULL, 0, 10);
    }
    return 0;
}

/* options: up to 32 more arguments, NULL at the end. */
static inline void start_server(struct real_server *server, const char *const *options)
{
    for (int tries = 0; tries < 5; tries++) {
        if (tries > 0 || server->port == 0)
            server->port = free_port();
        char port[16];
        snprintf(port, sizeof port, "%d", server->port);
        const char *argv[44] = {"redis-server", "--port", port,  "--bind",
                                "127.0.0.1",    "--save", "",    "--logfile",
                                "/dev/null",    "--dir",  "/tmp"};
        for (int i = 0; options && options[i]; i++)
            argv[11 + i] = options[i];
        server->pid = fork();
        assert_true(server->pid >= 0);
        if (server->pid == 0) {
            execvp(redis_program(), (char *const *)(uintptr_t)argv);
            _exit(127);
        }
        snprintf(server->url, sizeof server->url, "redis://127.0.0.1:%d", server->port);
        if (wait_for_server(server))
            return;
        kill(server->pid, SIGKILL);
        waitpid(server->pid, NULL, 0);
    }
    fail_msg("redis-server does not start");
}

static inline void stop_server(struct real_server *server)
{
    kill(server->pid, SIGKILL);
    waitpid(server->pid, NULL, 0);
}

#define scoped_server ENDED_BY(stop_server) struct real_server

/* Gives the number of an integer reply, 1 for OK, 0 for anything else. */
static inline long long ask(const struct real_server *server, const char *format, ...)
{
    valkeyContext *context = valkeyConnect("127.0.0.1", server->port);
    va_list arguments;
    va_start(arguments, format);
    valkeyReply *reply = valkeyvCommand(context, format, arguments);
    va_end(arguments);
    assert_non_null(reply);
    const long long number = reply->type == VALKEY_REPLY_INTEGER  ? reply->integer
                             : reply->type == VALKEY_REPLY_STATUS ? 1
                                                                  : 0;
    freeReplyObject(reply);
    valkeyFree(context);
    return number;
}

#endif
