/* A sequence of another process: GB of KV in a second, from the ticket to COMPLETE, beside memcpy
 * of the same bytes out of the other process's pages. Over the link for shared memory, and over
 * TCP on 127.0.0.1.
 *
 *   sender (a child)     pool in pages that both have, so that the yardstick can read them
 *   receiver (here)      a memory of its own of the same layout, and so of the same slots
 *
 * Each stays on a processor of its own. Both have their pages out of the caches before each sample.
 * After it the bytes are compared. */
#define _GNU_SOURCE /* MAP_ANONYMOUS, sched_setaffinity */

#include "bench.h"

#include "../test/common/tcp_pair.h"

#include <kvpager/memory.h>
#include <kvpager/transfer.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    LAYERS = 32,
    HEADS = 8,
    HEAD_SIZE = 128,
    TOKENS = 512,
    QUICK_TOKENS = 64,
    TICKET_BYTES = 4096,
    SAMPLES = 21
};

/* What either process has. */
typedef struct side {
    int control;
    kvp_layout layout;
    kvp_cache *cache;
    kvp_ns ns;
    kvp_memory *memory;
    int meet; /* a socket for the link itself; over TCP `wire` */
    int wire;
    kvp_shm *shm;
    kvp_tcp *tcp;
    void (*connect)(struct side *s);
    kvp_link end;
    uint32_t link;
    uint32_t n_tokens;
    const int32_t *tokens;
} side;

typedef struct transfer_state {
    side here;
    kvp_receiver *receiver;
    pid_t sender;
    cpu_set_t processors; /* of this process, before */
    size_t pool_bytes;
    char *theirs; /* [pool_bytes] the sender's pool */
} transfer_state;

/* ---------------------------------------------------------------------------------- both sides */

static kvp_layout make_layout(uint32_t n_tokens)
{
    kvp_layout layout;
    kvp_layout_init(&layout);
    layout.type = KVP_BF16;
    layout.n_blocks = n_tokens / BLOCK_TOKENS + 1;
    layout.block_tokens = BLOCK_TOKENS;
    layout.n_layers = LAYERS;
    layout.n_heads = HEADS;
    layout.k.size = layout.v.size = HEAD_SIZE;
    REQUIRE_OK(kvp_layout_arrange(&layout, "L2NSHD", NULL)); /* as vLLM's, in one tensor */
    return layout;
}

static void open_cache(side *s)
{
    kvp_config config;
    kvp_config_init(&config);
    config.block_tokens = BLOCK_TOKENS;
    config.n_blocks = s->layout.n_blocks;
    config.max_seqs = 1;
    config.max_seq_tokens = s->n_tokens;
    REQUIRE_OK(kvp_cache_create(&config, NULL, 0, &s->cache));
    REQUIRE_OK(kvp_ns_open(s->cache, NULL, 0, &s->ns));
}

static kvp_seq open_seq(const side *s)
{
    const kvp_prompt prompt = {
        .struct_size = sizeof prompt, .tokens = s->tokens, .n_tokens = s->n_tokens};
    kvp_seq seq;
    REQUIRE_OK(kvp_seq_open(s->cache, s->ns, &prompt, &seq, NULL));
    return seq;
}

static kvp_transfer_config config_of(const side *s)
{
    kvp_transfer_config config;
    kvp_transfer_config_init(&config);
    config.cache = s->cache;
    config.memory = s->memory;
    return config;
}

static void say(const side *s, const void *bytes, size_t n_bytes)
{
    REQUIRE(send(s->control, bytes, n_bytes, 0) == (ssize_t)n_bytes);
}

/* Meet the other process over the link for shared memory, with the control socket. */
static void connect_shm(side *s)
{
    kvp_status status;
    REQUIRE_OK(kvp_shm_open(s->meet, KVP_SHM_MESSAGE, KVP_SHM_MESSAGES, &s->shm, NULL));
    while ((status = kvp_shm_connect(s->shm, &s->end, NULL)) == KVP_E_AGAIN)
        (void)sched_yield();
    REQUIRE_OK(status);
}

static void connect_tcp(side *s)
{
    kvp_status status;
    REQUIRE_OK(kvp_tcp_open(s->wire, KVP_SHM_MESSAGE, KVP_SHM_MESSAGES, &s->tcp, NULL));
    while ((status = kvp_tcp_connect(s->tcp, &s->end, NULL)) == KVP_E_AGAIN)
        (void)sched_yield();
    REQUIRE_OK(status);
}

static void disconnect(side *s)
{
    kvp_shm_close(s->shm);
    kvp_tcp_close(s->tcp);
}

/* Stay on the n-th processor that this process may use, if there is one. */
static void stay_on(int n)
{
    cpu_set_t all, one;
    CPU_ZERO(&one);
    REQUIRE(sched_getaffinity(0, sizeof all, &all) == 0);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &all) && n-- == 0) {
            CPU_SET(cpu, &one);
            REQUIRE(sched_setaffinity(0, sizeof one, &one) == 0);
        }
    }
}

/* ---------------------------------------------------------------------------------- the sender */

static void send_one(kvp_sender *sender, const kvp_send *what)
{
    uint64_t id;
    kvp_transfer_info info = {0};
    REQUIRE_OK(kvp_sender_mark(sender, what, &id));
    while (info.state < KVP_TRANSFER_COMPLETE) {
        REQUIRE_OK(kvp_sender_progress(sender, NULL));
        REQUIRE_OK(kvp_sender_info_get(sender, id, &info));
        (void)sched_yield();
    }
    REQUIRE(info.state == KVP_TRANSFER_COMPLETE);
    REQUIRE_OK(kvp_sender_close(sender, id));
}

/* Sends its sequence to every ticket that comes, until no more do. */
static void run_sender(side *s, void *pool)
{
    uint8_t ticket[TICKET_BYTES];
    kvp_sender *sender;
    ssize_t n;
    open_cache(s);
    REQUIRE_OK(kvp_memory_wrap(&s->layout, &pool, &s->memory));
    kvp_send what = {
        .struct_size = sizeof what, .seq = open_seq(s), .ticket = ticket, .ready_tokens = KVP_END};
    REQUIRE_OK(kvp_seq_commit(s->cache, what.seq, s->n_tokens));
    const kvp_transfer_config config = config_of(s);
    REQUIRE_OK(kvp_sender_create(&config, &sender));
    s->connect(s);
    REQUIRE_OK(kvp_sender_attach(sender, &s->end, &what.link));
    while ((n = recv(s->control, ticket, sizeof ticket, 0)) > 0) {
        what.ticket_bytes = (size_t)n;
        send_one(sender, &what);
    }
    kvp_sender_destroy(sender);
    disconnect(s);
}

/* ------------------------------------------------------------------------------------ the group */

static void fill(char *bytes, size_t n_bytes)
{
    uint64_t word = 1;
    for (size_t i = 0; i < n_bytes; i += sizeof word) {
        word = word * UINT64_C(6364136223846793005) + 1442695040888963407u;
        memcpy(bytes + i, &word, sizeof word);
    }
}

static void *set_up_over(const bench_options *options, void (*connect)(side *s))
{
    static int32_t tokens[TOKENS];
    transfer_state *t = allocate(sizeof *t);
    side *here = &t->here;
    kvp_memory_options memory;
    int pair[2], meet[2], wire[2];
    here->n_tokens = options->quick ? QUICK_TOKENS : TOKENS;
    here->tokens = tokens;
    here->layout = make_layout(here->n_tokens);
    t->pool_bytes = here->layout.k.tensor_bytes;
    t->theirs =
        mmap(NULL, t->pool_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(t->theirs != MAP_FAILED);
    fill(t->theirs, t->pool_bytes);
    here->connect = connect;
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0);
    REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, meet) == 0);
    REQUIRE(open_tcp_pair(wire));
    REQUIRE(sched_getaffinity(0, sizeof t->processors, &t->processors) == 0);
    t->sender = fork();
    REQUIRE(t->sender >= 0);
    here->control = pair[t->sender == 0];
    here->meet = meet[t->sender == 0];
    here->wire = wire[t->sender == 0];
    (void)close(pair[t->sender != 0]);
    (void)close(meet[t->sender != 0]);
    (void)close(wire[t->sender != 0]);
    stay_on(t->sender == 0);
    if (t->sender == 0) {
        run_sender(here, t->theirs);
        _exit(0);
    }
    kvp_memory_options_init(&memory);
    memory.touch = 1;
    open_cache(here);
    REQUIRE_OK(kvp_memory_create(&here->layout, &memory, &here->memory));
    const kvp_transfer_config config = config_of(here);
    REQUIRE_OK(kvp_receiver_create(&config, &t->receiver));
    here->connect(here);
    REQUIRE_OK(kvp_receiver_attach(t->receiver, &here->end, &here->link));
    return t;
}

static void tear_down(void *state)
{
    transfer_state *t = state;
    int status;
    (void)close(t->here.control);
    REQUIRE(waitpid(t->sender, &status, 0) == t->sender && status == 0);
    kvp_receiver_destroy(t->receiver);
    disconnect(&t->here);
    (void)close(t->here.meet);
    (void)close(t->here.wire);
    kvp_memory_destroy(t->here.memory);
    kvp_cache_destroy(t->here.cache);
    (void)munmap(t->theirs, t->pool_bytes);
    REQUIRE(sched_setaffinity(0, sizeof t->processors, &t->processors) == 0);
    free(t);
}

/* The memory of this side, empty, and both cold. */
static char *prepare(const transfer_state *t)
{
    char *ours = kvp_memory_tensor(t->here.memory, 0);
    memset(ours, 0, t->pool_bytes);
    flush_caches(ours, t->pool_bytes);
    flush_caches(t->theirs, t->pool_bytes);
    return ours;
}

static double by_transfer(void *state)
{
    transfer_state *t = state;
    uint8_t ticket[TICKET_BYTES];
    size_t n_ticket;
    uint64_t id;
    kvp_transfer_info info = {0};
    const char *ours = prepare(t);
    const kvp_receive what = {
        .struct_size = sizeof what, .seq = open_seq(&t->here), .end = KVP_END};
    const uint64_t start = now_ns();
    REQUIRE_OK(kvp_receiver_reserve(t->receiver, &what, ticket, sizeof ticket, &n_ticket, &id));
    say(&t->here, ticket, n_ticket);
    while (info.state < KVP_TRANSFER_COMPLETE || info.owed > 0) {
        REQUIRE_OK(kvp_receiver_progress(t->receiver, 0, NULL));
        REQUIRE_OK(kvp_receiver_info_get(t->receiver, id, &info));
        (void)sched_yield();
    }
    const uint64_t ns = now_ns() - start;
    REQUIRE(info.state == KVP_TRANSFER_COMPLETE);
    REQUIRE(info.bytes == t->pool_bytes / t->here.layout.n_blocks * (t->here.layout.n_blocks - 1));
    const size_t null_block = t->pool_bytes / (2 * LAYERS) / t->here.layout.n_blocks;
    for (size_t at = 0; at < t->pool_bytes; at += null_block * t->here.layout.n_blocks)
        REQUIRE(memcmp(ours + at + null_block, t->theirs + at + null_block,
                       null_block * (t->here.layout.n_blocks - 1)) == 0);
    REQUIRE_OK(kvp_receiver_close(t->receiver, id));
    REQUIRE_OK(kvp_seq_close(t->here.cache, what.seq, NULL));
    return (double)info.bytes / (double)ns;
}

static double by_memcpy(void *state)
{
    transfer_state *t = state;
    char *ours = prepare(t);
    const uint64_t start = now_ns();
    memcpy(ours, t->theirs, t->pool_bytes);
    const uint64_t ns = now_ns() - start;
    REQUIRE(memcmp(ours, t->theirs, t->pool_bytes) == 0);
    return (double)t->pool_bytes / (double)ns;
}

static const measurement over_shm[] = {
    {"transfer_shm", "GB/s", 0, SAMPLES, by_transfer, by_memcpy,
     "between two processes, checksums included; more is better"},
};

static void *set_up(const bench_options *options)
{
    return set_up_over(options, connect_shm);
}

const group transfer_group = {over_shm, 1, set_up, tear_down};

static const measurement over_tcp[] = {
    {"transfer_tcp", "GB/s", 0, SAMPLES, by_transfer, by_memcpy,
     "the same over TCP on 127.0.0.1; more is better"},
};

static void *set_up_tcp(const bench_options *options)
{
    return set_up_over(options, connect_tcp);
}

const group transfer_tcp_group = {over_tcp, 1, set_up_tcp, tear_down};
