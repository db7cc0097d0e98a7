/* Requests of an engine whose store is a real server: full, slow, away and back. One that asks the
 * store waits at most as long as computing its prompt takes, what it reads is right, and the
 * store says in one line what happened. Skipped where there is no redis-server. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "mocka.h"

#include <time.h>

#include "../spill/scenes.h"

#include "real_server.h"

enum { PROMPT = 256, TOKENS_S = 800, PROMPTS = 6 };

#define SECOND     UINT64_C(1000000000)
#define COMPUTE_NS (PROMPT * SECOND / TOKENS_S)

static struct real_server server;
static world w;
static uint64_t longest_ns; /* between two looks of this program: the machine is busy with others */

static uint64_t real_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * SECOND + (uint64_t)time.tv_nsec;
}

/* Store and spill work once; gives the number of answers. */
static uint32_t look(kvp_spill_answer answers[8])
{
    const uint64_t now = real_now();
    longest_ns = now - w.now > longest_ns ? now - w.now : longest_ns;
    w.now = now;
    assert_int_equal(kvp_store_work(w.store, NULL), KVP_OK);
    return world_work_once(&w, answers);
}

/* A request: what was asked for is answered in time, and what was loaded is read and right. */
static uint32_t request(uint32_t prompt_number)
{
    world_line line = line_of(&w, PROMPT, 0, 1000 * (int32_t)prompt_number);
    const kvp_prompt prompt = world_prompt(&line);
    kvp_spill_answer answer, answers[8];
    w.now = real_now();
    longest_ns = 0;
    const uint64_t began = w.now;
    const kvp_spill_request asked = {
        .struct_size = sizeof asked, .tag = 1, .deadline_ns = began + COMPUTE_NS};
    assert_int_equal(kvp_spill_ask(w.spill, w.spaces[0], &prompt, &asked, w.now, &answer), KVP_OK);
    while (answer.outcome == KVP_SPILL_WAITS) {
        poll(NULL, 0, 1);
        if (look(answers) > 0)
            answer = answers[0];
    }
    const uint64_t waited = real_now() - began;
    if (waited > COMPUTE_NS + 2 * longest_ns + SECOND / 100)
        fail_msg("waited %llu ms, computing takes %llu", (unsigned long long)(waited / 1000000),
                 (unsigned long long)(COMPUTE_NS / 1000000));
    compute(&w, &line);
    const uint64_t until = real_now() + SECOND / 20; /* the engine computes; the store writes */
    while (real_now() < until) {
        (void)look(answers);
        poll(NULL, 0, 1);
    }
    return answer.outcome;
}

/* Requests in turn until n of them had this outcome. 0: they had not. */
static int requests_until(uint32_t outcome, uint32_t n, uint32_t n_most)
{
    for (uint32_t i = 0; i < n_most && n > 0; i++)
        n -= request(i % PROMPTS) == outcome;
    return n == 0;
}

static void expect_text(const char *words)
{
    char text[400];
    assert_int_equal(kvp_store_describe(w.store, text, sizeof text), KVP_OK);
    if (!strstr(text, words))
        fail_msg("%s: no \"%s\"", text, words);
}

TEST(a_store_under_trouble)
{
    static const char *const options[] = {"--maxmemory", "64mb", "--maxmemory-policy",
                                          "volatile-ttl", NULL};
    char url[140], limit[60];
    start_server(&server, options);
    snprintf(url, sizeof url, "%s?timeout=1s&connections=2", server.url);
    world_options its = world_defaults();
    its.url = url;
    its.policy = KVP_SPILL_THROUGH;
    its.n_blocks = PROMPT / its.block_tokens + 8; /* one prompt: the others are in the store */
    its.host_blocks = PROMPT / its.block_tokens + 8;
    its.more.compute_tokens_s = TOKENS_S;
    open_world(&w, &its);
    assert_true(requests_until(KVP_SPILL_LOADED, PROMPTS, 8 * PROMPTS));
    expect_text("server 7");

    /* Full, and nothing can be evicted: what is there is read, what is new is refused. */
    snprintf(limit, sizeof limit, "%lld", 1000000LL);
    assert_int_equal(ask(&server, "CONFIG SET maxmemory-policy noeviction"), 1);
    assert_int_equal(ask(&server, "CONFIG SET maxmemory %s", limit), 1);
    for (uint32_t i = 0; i < 3; i++)
        (void)request(PROMPTS + i);
    assert_true(requests_until(KVP_SPILL_LOADED, PROMPTS, 4 * PROMPTS));
    expect_text("; full: maxmemory is reached");
    assert_int_equal(ask(&server, "CONFIG SET maxmemory 64mb"), 1);

    /* It stands still, and comes back. */
    kill(server.pid, SIGSTOP);
    for (uint32_t i = 0; i < 2 * PROMPTS; i++)
        assert_int_not_equal(request(i % PROMPTS), KVP_SPILL_LOADED);
    expect_text("away: the server did not answer in time");
    kill(server.pid, SIGCONT);
    assert_true(requests_until(KVP_SPILL_LOADED, PROMPTS, 20 * PROMPTS));

    /* It goes, and another comes in its place, without anything. */
    stop_server(&server);
    for (uint32_t i = 0; i < 2 * PROMPTS; i++)
        assert_int_not_equal(request(i % PROMPTS), KVP_SPILL_LOADED);
    expect_text("away: Connection refused");
    start_server(&server, options);
    assert_true(requests_until(KVP_SPILL_LOADED, PROMPTS, 40 * PROMPTS));
    char text[400];
    assert_int_equal(kvp_store_describe(w.store, text, sizeof text), KVP_OK);
    assert_null(strstr(text, "away"));
    close_world(&w);
    stop_server(&server);
}

int main(void)
{
    if (!redis_program()) {
        puts("skipped: there is no redis-server (Debian: redis-tools)");
        return 77;
    }
    return run_all_tests(NULL, NULL);
}
