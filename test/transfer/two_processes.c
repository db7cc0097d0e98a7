/* A prefills, B decodes. A sequence moves from one process to the other, and one of them is killed
 * at every message; the other must be left with a clean cache, and go on to the same bits.
 *
 *     two_processes socket | groups | shm | tcp    links over sockets, with two layer groups,
 *                                                   over shared memory, over TCP
 *
 *   parent   starts both, carries the ticket, sees who dies and (if it is to) says so
 *   A        blocks of 4; computes the prompt in steps, sends layer by layer, then decodes alone
 *   B        blocks of 8, another order; has a part of the prompt cached, receives the rest but
 *            the last token, which it computes, then decodes. Without the KV it computes all
 *
 * Whoever survives must give the digest that an undisturbed run gives. Nothing depends on time: a
 * victim counts its messages and kills itself; the survivor learns of it from its link, or from the
 * parent, who has seen it. */
#define _POSIX_C_SOURCE 200809L

#include "mini_model.h"
#include "socket_link.h"
#include "tcp_pair.h"

#include <kvpager/transfer.h>

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N_PROMPT = 23, N_CACHED = 8, N_DECODED = 6, STEP = 2, WORD_BYTES = 6144 };

#define require(condition)                                                                         \
    do {                                                                                           \
        if (!(condition))                                                                          \
            die(__LINE__, #condition);                                                             \
    } while (0)

static void die(int line, const char *what)
{
    fprintf(stderr, "two_processes.c:%d: %s\n", line, what);
    abort();
}

/* ------------------------------------------------------------------------------ what is said */

enum { TICKET = 1, GONE = 2, VERDICT = 3 };

struct word {
    uint32_t what;
    uint32_t n;
    uint8_t bytes[WORD_BYTES];
};

struct verdict {
    uint32_t state; /* of the transfer; 0: there was none */
    uint64_t digest;
};

static void say(int fd, uint32_t what, const void *bytes, size_t n)
{
    struct word word = {.what = what, .n = (uint32_t)n};
    require(n <= sizeof word.bytes);
    if (n > 0)
        memcpy(word.bytes, bytes, n);
    (void)send(fd, &word, offsetof(struct word, bytes) + n, MSG_NOSIGNAL); /* who is gone is gone */
}

/* 0: the other end is closed, or (with MSG_DONTWAIT) there is nothing. One that went without having
 * read everything is told of once, before what it said itself. */
static int hear(int fd, struct word *word, int flags)
{
    ssize_t n;
    do
        n = recv(fd, word, sizeof *word, flags);
    while (n < 0 && (errno == EINTR || errno == ECONNRESET));
    return n > 0;
}

/* -------------------------------------------------------------------------- both processes */

struct scenario {
    const char *over; /* "socket", "groups" (over a socket), "shm", "tcp" */
    int victim;       /* 0: A, 1: B, -1: nobody */
    uint32_t at;      /* which of its events is the last; 0: before the first */
    int told;         /* the parent says that the other one is gone */
};

struct side {
    struct scenario scenario;
    int me;
    int control;
    int data;
    uint32_t n_events;
    int gone; /* the parent said so */
    struct word ticket;
    kvp_link inner;
    socket_link socket;
    kvp_shm *shm;
    kvp_tcp *tcp;
    mini_model model;
};

static struct side self;

static void event(void)
{
    if (self.scenario.victim == self.me && self.n_events++ == self.scenario.at)
        (void)raise(SIGKILL);
}

static kvp_status lend(void *context, size_t n_bytes, void **out_buffer)
{
    (void)context;
    return self.inner.lend(self.inner.context, n_bytes, out_buffer);
}

static kvp_status post(void *context, size_t n_bytes)
{
    (void)context;
    event();
    const kvp_status status = self.inner.post(self.inner.context, n_bytes);
    event();
    return status;
}

static kvp_status take(void *context, const void **out_bytes, size_t *out_n_bytes)
{
    (void)context;
    const kvp_status status = self.inner.take(self.inner.context, out_bytes, out_n_bytes);
    if (status == KVP_OK)
        event();
    return status;
}

static void give_back(void *context)
{
    (void)context;
    event();
    self.inner.give_back(self.inner.context);
}

static void progress(void *context)
{
    (void)context;
    self.inner.progress(self.inner.context);
}

static void note(const struct word *word)
{
    self.gone |= word->what == GONE;
    if (word->what == TICKET)
        self.ticket = *word;
}

/* Wait for a word of the parent's; 0: the other one is gone. */
static int wait_for(uint32_t what, struct word *word)
{
    while (!self.gone && hear(self.control, word, 0)) {
        note(word);
        if (word->what == what)
            return 1;
    }
    self.gone = 1;
    return 0;
}

/* Hear what there is. */
static int is_gone(void)
{
    struct word word;
    while (hear(self.control, &word, MSG_DONTWAIT))
        note(&word);
    return self.gone;
}

static int is_grouped(const char *over)
{
    return strcmp(over, "groups") == 0;
}

static int is_socket(const char *over)
{
    return strcmp(over, "socket") == 0 || is_grouped(over);
}

static int is_shm(const char *over)
{
    return strcmp(over, "shm") == 0;
}

static int is_tcp(const char *over)
{
    return strcmp(over, "tcp") == 0;
}

static int connect_shm(void)
{
    kvp_status status = kvp_shm_open(self.data, 4096, 16, &self.shm, NULL);
    require(status == KVP_OK || status == KVP_E_PEER);
    if (self.scenario.told) /* who is not told must have a link: see sweep */
        event();
    if (status != KVP_OK)
        return 0;
    while ((status = kvp_shm_connect(self.shm, &self.inner, NULL)) == KVP_E_AGAIN)
        (void)sched_yield();
    require(status == KVP_OK || status == KVP_E_PEER);
    return status == KVP_OK;
}

static int connect_tcp(void)
{
    kvp_status status = kvp_tcp_open(self.data, 4096, 16, &self.tcp, NULL);
    require(status == KVP_OK || status == KVP_E_PEER);
    if (self.scenario.told) /* as over shared memory */
        event();
    if (status != KVP_OK)
        return 0;
    while ((status = kvp_tcp_connect(self.tcp, &self.inner, NULL)) == KVP_E_AGAIN)
        (void)sched_yield();
    require(status == KVP_OK || status == KVP_E_PEER);
    return status == KVP_OK;
}

/* 0: there is nobody there. */
static int connect_link(kvp_link *out_link)
{
    if (is_socket(self.scenario.over))
        self.inner = socket_link_end(&self.socket, self.data);
    else if (is_shm(self.scenario.over) ? !connect_shm() : !connect_tcp())
        return 0;
    event();
    *out_link = (kvp_link){
        sizeof(kvp_link), self.inner.max_message, &self, lend, post, take, give_back, progress};
    return 1;
}

static kvp_transfer_config config_of(void)
{
    kvp_transfer_config config;
    kvp_transfer_config_init(&config);
    config.cache = self.model.cache;
    config.memory = self.model.memory;
    if (self.model.n_groups > 1)
        config.memories = (const kvp_memory *const *)self.model.memories;
    config.model = "mini";
    config.model_bytes = 4;
    return config;
}

static kvp_seq open_prompt(uint32_t n, uint32_t flags, kvp_open_info *info)
{
    int32_t tokens[N_PROMPT];
    kvp_ns ns;
    kvp_seq seq;
    for (int32_t i = 0; i < N_PROMPT; i++)
        tokens[i] = 7 * i % 31;
    const kvp_prompt prompt = {
        .struct_size = sizeof prompt, .tokens = tokens, .n_tokens = n, .flags = flags};
    require(kvp_ns_open(self.model.cache, NULL, 0, &ns) == KVP_OK);
    require(kvp_seq_open(self.model.cache, ns, &prompt, &seq, info) == KVP_OK);
    require(kvp_ns_close(self.model.cache, ns) == KVP_OK);
    return seq;
}

static void check_clean(void)
{
    kvp_stats stats;
    require(kvp_cache_check(self.model.cache, 3, NULL) == KVP_OK);
    require(kvp_cache_stats_get(self.model.cache, &stats) == KVP_OK);
    require(stats.held_blocks == 0 && stats.open_seqs == 0 && stats.pending_copies == 0);
    require(stats.free_blocks + stats.cached_blocks == stats.usable_blocks);
}

/* Decode, close, and say how it was. */
static void finish(uint32_t state)
{
    for (int i = 0; i < N_DECODED; i++)
        require(mini_decode(&self.model));
    require(kvp_seq_close(self.model.cache, self.model.seq, NULL) == KVP_OK);
    check_clean();
    const struct verdict verdict = {state, self.model.digest};
    say(self.control, VERDICT, &verdict, sizeof verdict);
    kvp_shm_close(self.shm);
    while (state == KVP_TRANSFER_COMPLETE && kvp_tcp_flush(self.tcp) == KVP_E_AGAIN && !is_gone())
        (void)sched_yield();
    kvp_tcp_close(self.tcp);
    mini_end(&self.model);
}

/* ----------------------------------------------------------------------------------------- A */

struct sending {
    kvp_sender *sender;
    uint64_t id;
};

static void on_written(void *context, uint32_t layer, uint32_t end)
{
    const struct sending *s = context;
    const kvp_status status = kvp_sender_ready(s->sender, s->id, layer, end);
    require(status == KVP_OK || status == KVP_E_STATE);
}

static uint32_t send_it(struct sending *s, uint32_t *computed)
{
    struct word word;
    kvp_link end;
    uint32_t link;
    const kvp_transfer_config config = config_of();
    kvp_send what = {.struct_size = sizeof what, .seq = self.model.seq, .ready_tokens = KVP_END};
    kvp_transfer_info info;
    require(kvp_sender_create(&config, &s->sender) == KVP_OK);
    if (!connect_link(&end) || (self.ticket.what == 0 && !wait_for(TICKET, &word)))
        return 0;
    require(kvp_sender_attach(s->sender, &end, &link) == KVP_OK);
    what.ticket = self.ticket.bytes;
    what.ticket_bytes = self.ticket.n;
    require(kvp_sender_mark(s->sender, &what, &s->id) == KVP_OK);
    self.model.written = on_written;
    self.model.context = s;
    for (; *computed < N_PROMPT; *computed += STEP)
        require(mini_forward(&self.model, *computed, *computed + STEP));
    self.model.written = NULL;
    do {
        require(kvp_sender_progress(s->sender, NULL) == KVP_OK);
        require(kvp_sender_info_get(s->sender, s->id, &info) == KVP_OK);
        if (info.state < KVP_TRANSFER_COMPLETE && self.scenario.told && is_gone())
            require(kvp_sender_abort(s->sender, s->id, KVP_E_PEER) == KVP_OK);
        (void)sched_yield();
    } while (info.state < KVP_TRANSFER_COMPLETE);
    require(kvp_sender_close(s->sender, s->id) == KVP_OK);
    return info.state;
}

static void run_a(void)
{
    struct sending sending = {0};
    uint32_t computed = 13;
    /* With two groups B keeps tokens from 12 on, which A must not have dropped: blocks of 8. */
    const int grouped = is_grouped(self.scenario.over);
    self.model = mini_make(grouped ? 8 : 4, KVP_ORDER_VLLM_NHD, grouped ? 2 : 1);
    self.model.seq = open_prompt(N_PROMPT, 0, NULL);
    require(mini_forward(&self.model, 0, computed)); /* there already when it is marked */
    const uint32_t state = send_it(&sending, &computed);
    for (; computed < N_PROMPT; computed += STEP)
        require(mini_forward(&self.model, computed, computed + STEP));
    kvp_sender_destroy(sending.sender);
    finish(state);
}

/* ----------------------------------------------------------------------------------------- B */

static uint32_t receive_it(kvp_receiver **receiver)
{
    uint8_t ticket[WORD_BYTES];
    size_t n;
    uint64_t id;
    uint32_t link;
    kvp_link end;
    kvp_transfer_info info;
    const kvp_transfer_config config = config_of();
    const kvp_receive what = {
        .struct_size = sizeof what, .seq = self.model.seq, .end = N_PROMPT - 1};
    require(kvp_receiver_create(&config, receiver) == KVP_OK);
    if (!connect_link(&end))
        return 0;
    require(kvp_receiver_attach(*receiver, &end, &link) == KVP_OK);
    require(kvp_receiver_reserve(*receiver, &what, ticket, sizeof ticket, &n, &id) == KVP_OK);
    say(self.control, TICKET, ticket, n);
    do {
        require(kvp_receiver_progress(*receiver, 0, NULL) == KVP_OK);
        require(kvp_receiver_info_get(*receiver, id, &info) == KVP_OK);
        const int lost = kvp_receiver_link(*receiver, link) != KVP_OK;
        if (info.state < KVP_TRANSFER_COMPLETE && (lost || (self.scenario.told && is_gone())))
            require(kvp_receiver_abort(*receiver, id, KVP_E_PEER) == KVP_OK);
        (void)sched_yield();
    } while (info.state < KVP_TRANSFER_COMPLETE ||
             (info.owed > 0 && !is_gone())); /* the peer is told */
    require(info.begin == N_CACHED && info.end == N_PROMPT - 1);
    require(kvp_receiver_close(*receiver, id) == KVP_OK);
    return info.state;
}

static void run_b(void)
{
    kvp_receiver *receiver;
    kvp_open_info open;
    kvp_seq_info info;
    const int grouped = is_grouped(self.scenario.over);
    self.model = mini_make(grouped ? 4 : 8, KVP_ORDER_CPU, grouped ? 2 : 1);
    self.model.seq = open_prompt(N_CACHED, 0, NULL);
    require(mini_forward(&self.model, 0, N_CACHED));
    require(kvp_seq_close(self.model.cache, self.model.seq, NULL) == KVP_OK);
    self.model.seq = open_prompt(N_PROMPT, grouped ? KVP_OPEN_RECEIVE : 0, &open);
    require(open.hit_tokens == N_CACHED);
    const uint32_t state = receive_it(&receiver);
    kvp_receiver_destroy(receiver);
    /* Nothing counts before it is committed, and nothing was lost. */
    require(kvp_seq_info_get(self.model.cache, self.model.seq, &info) == KVP_OK);
    require(info.computed_tokens == N_CACHED && info.n_tokens == N_PROMPT);
    require(kvp_cache_check(self.model.cache, 3, NULL) == KVP_OK);
    if (state == KVP_TRANSFER_COMPLETE) {
        require(kvp_seq_commit(self.model.cache, self.model.seq, N_PROMPT - 1) == KVP_OK);
        require(mini_forward(&self.model, N_PROMPT - 1, N_PROMPT));
    } else {
        if (grouped) { /* it has dropped what computing it needs */
            require(kvp_seq_close(self.model.cache, self.model.seq, NULL) == KVP_OK);
            self.model.seq = open_prompt(N_PROMPT, 0, &open);
            require(open.hit_tokens == N_CACHED);
        }
        require(mini_forward(&self.model, N_CACHED, N_PROMPT));
    }
    finish(state);
}

/* ----------------------------------------------------------------------------------- the parent */

struct outcome {
    int was_killed;
    struct verdict verdicts[2];
};

static void connect_pair(const struct scenario *scenario, int *out_sockets)
{
    if (is_tcp(scenario->over))
        require(open_tcp_pair(out_sockets));
    else
        require(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, out_sockets) == 0);
}

static pid_t start(const struct scenario *scenario, int me, int *const controls, const int *data)
{
    int pair[2];
    require(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
    const pid_t pid = fork();
    require(pid >= 0);
    if (pid > 0) {
        (void)close(pair[1]);
        controls[me] = pair[0];
        return pid;
    }
    (void)close(pair[0]);
    (void)close(data[1 - me]);
    if (me == 1)
        (void)close(controls[0]);
    self = (struct side){.scenario = *scenario, .me = me, .control = pair[1], .data = data[me]};
    if (me == 0)
        run_a();
    else
        run_b();
    _exit(0);
}

static void on_end(const struct scenario *scenario, int who, pid_t pid, int other,
                   struct outcome *o)
{
    int status;
    require(waitpid(pid, &status, 0) == pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return;
    if (!(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && who == scenario->victim)) {
        fprintf(stderr, "%s: %c ended with %x (victim %d, event %u)\n", scenario->over, 'A' + who,
                (unsigned)status, scenario->victim, scenario->at);
        exit(1);
    }
    o->was_killed = 1;
    if (scenario->told && other >= 0)
        say(other, GONE, NULL, 0);
}

static struct outcome run(const struct scenario *scenario)
{
    int data[2], controls[2];
    pid_t pids[2];
    struct outcome o = {0};
    connect_pair(scenario, data);
    for (int i = 0; i < 2; i++)
        pids[i] = start(scenario, i, controls, data);
    (void)close(data[0]);
    (void)close(data[1]);
    for (int n = 2; n > 0;) {
        struct pollfd fds[2] = {{.fd = controls[0], .events = POLLIN},
                                {.fd = controls[1], .events = POLLIN}};
        require(poll(fds, 2, -1) > 0);
        for (int i = 0; i < 2; i++) {
            struct word word;
            if (controls[i] < 0 || fds[i].revents == 0)
                continue;
            if (hear(controls[i], &word, 0)) {
                if (word.what == VERDICT)
                    memcpy(&o.verdicts[i], word.bytes, sizeof o.verdicts[i]);
                else if (controls[1 - i] >= 0)
                    say(controls[1 - i], word.what, word.bytes, word.n);
                continue;
            }
            (void)close(controls[i]);
            controls[i] = -1;
            on_end(scenario, i, pids[i], controls[1 - i], &o);
            n--;
        }
    }
    return o;
}

static uint64_t undisturbed(const char *over)
{
    const struct scenario nobody = {.over = over, .victim = -1, .told = 1};
    const struct outcome o = run(&nobody);
    require(o.verdicts[0].state == KVP_TRANSFER_COMPLETE);
    require(o.verdicts[1].state == KVP_TRANSFER_COMPLETE);
    require(o.verdicts[0].digest == o.verdicts[1].digest);
    return o.verdicts[0].digest;
}

/* Kill one of them at every event; whoever survives gives the digest. */
static void sweep(const char *over, int told, uint64_t digest)
{
    for (int victim = 0; victim < 2; victim++) {
        /* Who is not told must have a link: B's ticket comes after its first event. */
        uint32_t n_complete = 0, at = !told && victim == 1;
        for (;; at++) {
            const struct scenario scenario = {over, victim, at, told};
            const struct outcome o = run(&scenario);
            if (!o.was_killed)
                break;
            if (o.verdicts[1 - victim].digest != digest)
                fprintf(stderr, "%s: %c killed at event %u: the other gives %llx, state %u\n", over,
                        'A' + victim, at, (unsigned long long)o.verdicts[1 - victim].digest,
                        o.verdicts[1 - victim].state);
            require(o.verdicts[1 - victim].digest == digest);
            n_complete += o.verdicts[1 - victim].state == KVP_TRANSFER_COMPLETE;
        }
        printf("%s, %s: %c killed at %u events, the other had it all in %u\n", over,
               told ? "told" : "not told", 'A' + victim, at, n_complete);
        (void)fflush(stdout);
        require(at >= 25); /* twelve messages one way, one the other, before and after each */
        require(n_complete < at && n_complete > 0);
    }
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: two_processes socket | groups | shm | tcp\n");
        return 2;
    }
    const uint64_t plain = undisturbed("socket"), grouped = undisturbed("groups");
    require(plain != grouped);
    for (int i = 1; i < argc; i++) {
        require(is_socket(argv[i]) || is_shm(argv[i]) || is_tcp(argv[i]));
        const uint64_t digest = is_grouped(argv[i]) ? grouped : plain;
        require(undisturbed(argv[i]) == digest);
        sweep(argv[i], 1, digest);
        sweep(argv[i], 0, digest);
    }
    return 0;
}
