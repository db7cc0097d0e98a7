/* Owns the simulated users. A few conversations go on at once; each request is the next turn of one
 * of them, drawn at random. One that has ended is replaced by a new one.
 *
 *   turn 1   prefix message                        answer
 *   turn 2   prefix message answer message         answer
 *   stripped prefix message (answer less its reasoning) message   reasoning answer
 *
 * Lengths are drawn between quantiles, with the medians of `kvpager gen` (workload.c there). A
 * token is a hash of the text it belongs to and its place there: texts are equal or differ
 * everywhere.
 */
#include "traffic.h"

#include <stdlib.h>
#include <string.h>

#define AT_ONCE     16
#define N_PREFIXES  4
#define MAX_CONTEXT 32768
#define N_POINTS    4

/* Lengths at 0, 50, 90 and 100 %. */
typedef struct lengths {
    uint32_t at[N_POINTS];
} lengths;

typedef struct kind {
    const char *name;
    lengths prefix, turns, message, reasoning, answer;
} kind;

static const kind kinds[N_TRAFFIC] = {
    [TRAFFIC_CHAT] = {"chat",
                      {{600, 1500, 3000, 5000}},
                      {{1, 3, 12, 40}},
                      {{5, 80, 900, 8000}},
                      {{0, 0, 0, 0}},
                      {{10, 280, 800, 2000}}},
    [TRAFFIC_AGENT] = {"agent",
                       {{3000, 6000, 9000, 12000}},
                       {{3, 15, 45, 100}},
                       {{20, 180, 1500, 6000}},
                       {{0, 0, 0, 0}},
                       {{15, 70, 300, 2000}}},
    [TRAFFIC_STRIPPED] = {"chat, reasoning stripped",
                          {{600, 1500, 3000, 5000}},
                          {{1, 3, 12, 40}},
                          {{5, 80, 900, 8000}},
                          {{50, 600, 2500, 6000}},
                          {{10, 280, 800, 2000}}},
};

typedef struct talk {
    int32_t *context; /* [MAX_CONTEXT] */
    uint32_t n;
    uint32_t turns_left;
} talk;

typedef struct users {
    const kind *of;
    uint64_t random;
    uint32_t n_texts;
    uint32_t prefix_tokens[N_PREFIXES];
    talk talks[AT_ONCE];
} users;

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static uint32_t draw(users *u, uint32_t n)
{
    u->random += UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)((mix(u->random) >> 32) * n >> 32);
}

static uint32_t draw_length(users *u, const lengths *of)
{
    static const uint32_t percent[N_POINTS] = {0, 50, 90, 100};
    const uint32_t at = draw(u, 100);
    uint32_t i = 0;
    while (at >= percent[i + 1])
        i++;
    const uint32_t width = percent[i + 1] - percent[i];
    return of->at[i] + (of->at[i + 1] - of->at[i]) * (at - percent[i]) / width;
}

/* The tokens of a text. */
static void write_text(uint32_t text, uint32_t n, int32_t *out)
{
    for (uint32_t i = 0; i < n; i++)
        out[i] = (int32_t)(mix((uint64_t)text << 32 | (i + 1)) & 0x3fffffff);
}

static void start_talk(users *u, talk *t)
{
    const uint32_t a = draw(u, N_PREFIXES), b = draw(u, N_PREFIXES);
    const uint32_t prefix = a < b ? a : b; /* the first ones are the most popular */
    t->n = u->prefix_tokens[prefix];
    t->turns_left = draw_length(u, &u->of->turns);
    write_text(prefix, t->n, t->context);
}

/* The next turn of a conversation that has room for it. */
static request take_turn(users *u, talk *t)
{
    const uint32_t message = draw_length(u, &u->of->message);
    const uint32_t reasoning = draw_length(u, &u->of->reasoning);
    const uint32_t answer = draw_length(u, &u->of->answer);
    if (t->turns_left == 0 || t->n + message + reasoning + answer > MAX_CONTEXT)
        start_talk(u, t);
    write_text(u->n_texts++, message, t->context + t->n);
    t->n += message;
    request r = {.n_prompt = t->n, .n_answer = reasoning + answer};
    r.tokens = malloc((r.n_prompt + (size_t)r.n_answer) * sizeof *r.tokens);
    if (r.tokens == NULL)
        abort();
    memcpy(r.tokens, t->context, t->n * sizeof *r.tokens);
    write_text(u->n_texts++, reasoning, r.tokens + t->n);
    write_text(u->n_texts++, answer, r.tokens + t->n + reasoning);
    memcpy(t->context + t->n, r.tokens + t->n + reasoning, answer * sizeof *r.tokens);
    t->n += answer;
    t->turns_left--;
    return r;
}

traffic traffic_make(traffic_kind which, uint32_t n_requests, uint64_t seed)
{
    static users u;
    traffic out = {.name = kinds[which].name, .n_requests = n_requests};
    u = (users){.of = &kinds[which], .random = seed, .n_texts = N_PREFIXES};
    out.requests = calloc(n_requests, sizeof *out.requests);
    for (uint32_t i = 0; i < N_PREFIXES; i++)
        u.prefix_tokens[i] = draw_length(&u, &u.of->prefix);
    for (uint32_t i = 0; i < AT_ONCE; i++) {
        u.talks[i].context = malloc(MAX_CONTEXT * sizeof *u.talks[i].context);
        if (u.talks[i].context == NULL || out.requests == NULL)
            abort();
        start_talk(&u, &u.talks[i]);
    }
    for (uint32_t i = 0; i < n_requests; i++) {
        out.requests[i] = take_turn(&u, &u.talks[draw(&u, AT_ONCE)]);
        const uint32_t n = out.requests[i].n_prompt + out.requests[i].n_answer;
        out.max_tokens = n > out.max_tokens ? n : out.max_tokens;
    }
    for (uint32_t i = 0; i < AT_ONCE; i++)
        free(u.talks[i].context);
    return out;
}

void traffic_free(traffic *of)
{
    for (uint32_t i = 0; i < of->n_requests; i++)
        free(of->requests[i].tokens);
    free(of->requests);
    of->requests = NULL;
}
