/* Owns the simulated users: who arrives when, how a conversation grows, and which ids name it.
 *
 * A workload is a queue of events in time. Conversations of each kind arrive at random; each keeps
 * its own stream of random numbers and its history, and waits in a heap for its next turn:
 *
 *   arrivals  chat ....|.......|..     next request = the earliest of all these;
 *             agent ......|.......     an arrival puts a new conversation into the heap,
 *             rag   ..|.....|.....     its first turn is due at once
 *   heap      (due, serial) -> conversation
 *
 * Ids. A turn's prompt is the context so far and a message. Blocks that were full in the turn
 * before keep their ids. The block that was partly filled has other content once it has grown, and
 * gets a new id, as does everything after it:
 *
 *   turn 1   prefix            message              ids 0 1 2 3'      3' is partly filled
 *   turn 2   prefix            message answer more  ids 0 1 2 4 5 6'
 *            |shared by many  |this conversation's
 *
 * Only the full blocks of a shared prefix have shared ids; the block in which it ends is each
 * conversation's own. Fresh ids count up, so an id always stands for one content after one history.
 *
 * Those of `agents` are quantiles of 31 conversations of Weka's (2,049 requests, docs/TOUR.md),
 * rounded; there, a tenth of the answers is not in the next prompt. What conversations share is not
 * recorded: here it is the tools and system prompts that those name. Left out: the tenth of the
 * conversations that begins with 65,000 tokens and more, inner agents, and compaction.
 *
 * The other tables below are rounded from published descriptions of such traffic (medians of a few
 * hundred tokens, tails of tens of thousands, popularity like 1 / rank); they are plausible, not
 * measured.
 */
#include "tool/requests/workload.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>

#include "tool/requests/workload_draw.h"

#define BLOCK        KVPI_WORKLOAD_TRACE_BLOCK
#define N_KINDS      5
#define MAX_PREFIXES 200

/* Streams of random numbers: conversations count up from 0, these are far above. */
#define STREAM_PREFIXES (UINT64_C(1) << 62)
#define STREAM_ARRIVALS (UINT64_C(1) << 63)

/* What one kind of traffic looks like; lengths in tokens. */
typedef struct kind {
    uint32_t mixed_percent;     /* its part of the requests of the mixed profile */
    uint32_t n_prefixes;        /* shared prefixes, the first ones the most popular */
    uint32_t base_tokens;       /* start that all its prefixes have in common */
    uint32_t max_context;       /* a conversation ends before a prompt gets longer */
    uint32_t dropped_permyriad; /* answers that are not in the next prompt */
    bool has_sessions;
    const kvpi_draw_point *prefix;   /* length of a shared prefix beyond the base */
    const kvpi_draw_point *turns;    /* requests of a conversation */
    const kvpi_draw_point *message;  /* what a turn adds to the context */
    const kvpi_draw_point *answer;   /* what the model generates */
    const kvpi_draw_point *pause_ms; /* from one turn's arrival to the next */
} kind;

/* Quantiles, in 1/10,000: {5000, 80} is a median of 80. */
static const kvpi_draw_point chat_prefix[] = {{0, 600}, {5000, 1500}, {10000, 5000}};
static const kvpi_draw_point chat_turns[] = {{0, 1},    {3500, 2},  {6000, 4},
                                             {8500, 9}, {9700, 20}, {10000, 50}};
static const kvpi_draw_point chat_message[] = {
    {0, 5}, {2500, 30}, {5000, 80}, {7500, 250}, {9000, 900}, {9800, 4000}, {10000, 16000}};
static const kvpi_draw_point chat_answer[] = {{0, 10},     {2500, 120},  {5000, 280},
                                              {7500, 500}, {9500, 1000}, {10000, 4000}};
static const kvpi_draw_point chat_pause_ms[] = {{0, 3000},     {2500, 12000},  {5000, 30000},
                                                {7500, 75000}, {9500, 300000}, {10000, 1800000}};

static const kvpi_draw_point agent_prefix[] = {{0, 3000}, {5000, 6000}, {10000, 12000}};
static const kvpi_draw_point agent_turns[] = {{0, 3},     {2500, 8},  {5000, 15},
                                              {7500, 30}, {9500, 60}, {10000, 150}};
static const kvpi_draw_point agent_message[] = {
    {0, 20}, {5000, 180}, {8000, 700}, {9500, 3000}, {10000, 12000}};
static const kvpi_draw_point agent_answer[] = {{0, 15}, {5000, 70}, {9000, 300}, {10000, 2000}};
static const kvpi_draw_point agent_pause_ms[] = {
    {0, 200}, {5000, 1500}, {9000, 5000}, {9900, 30000}, {10000, 120000}};

static const kvpi_draw_point rag_document[] = {
    {0, 800}, {5000, 3500}, {9000, 9000}, {10000, 24000}};
static const kvpi_draw_point rag_turns[] = {{0, 1}, {7000, 2}, {9500, 3}, {10000, 5}};
static const kvpi_draw_point rag_message[] = {{0, 8}, {5000, 40}, {9000, 150}, {10000, 600}};
static const kvpi_draw_point rag_answer[] = {{0, 20}, {5000, 180}, {9500, 600}, {10000, 1500}};
static const kvpi_draw_point rag_pause_ms[] = {
    {0, 5000}, {5000, 30000}, {9000, 120000}, {10000, 600000}};

static const kvpi_draw_point users_prefix[] = {{0, 2048}, {10000, 2049}};
static const kvpi_draw_point users_turns[] = {{0, 1}, {10000, 2}};
static const kvpi_draw_point users_message[] = {{0, 10}, {5000, 90}, {9000, 300}, {10000, 1000}};
static const kvpi_draw_point users_answer[] = {{0, 10}, {5000, 120}, {10000, 500}};
static const kvpi_draw_point users_pause_ms[] = {{0, 0}, {10000, 1}}; /* one turn each */

static const kvpi_draw_point agents_prefix[] = {{0, 8000}, {5000, 11500}, {10000, 16000}};
static const kvpi_draw_point agents_turns[] = {{0, 2},     {1000, 4},   {2500, 9},   {5000, 19},
                                               {7500, 57}, {9000, 136}, {10000, 163}};
static const kvpi_draw_point agents_message[] = {{0, 1},       {1000, 29},    {2500, 91},
                                                 {5000, 380},  {7500, 1450},  {9000, 4600},
                                                 {9500, 7700}, {9900, 22500}, {10000, 60000}};
static const kvpi_draw_point agents_answer[] = {{0, 14},      {1000, 96},   {2500, 134},
                                                {5000, 213},  {7500, 385},  {9000, 771},
                                                {9500, 1450}, {9900, 4070}, {10000, 9200}};
static const kvpi_draw_point agents_delay_ms[] = {{0, 0},         {1000, 3460},   {2500, 4710},
                                                  {5000, 7350},   {7500, 16600},  {9000, 80200},
                                                  {9500, 143400}, {9900, 990800}, {10000, 3600000}};

static const kind kinds[N_KINDS] = {
    [KVPI_WORKLOAD_CHAT] = {.mixed_percent = 45,
                            .n_prefixes = 6,
                            .base_tokens = 0,
                            .max_context = 32768,
                            .prefix = chat_prefix,
                            .turns = chat_turns,
                            .message = chat_message,
                            .answer = chat_answer,
                            .pause_ms = chat_pause_ms},
    [KVPI_WORKLOAD_AGENT] = {.mixed_percent = 35,
                             .n_prefixes = 4,
                             .base_tokens = 0,
                             .max_context = 131072,
                             .prefix = agent_prefix,
                             .turns = agent_turns,
                             .message = agent_message,
                             .answer = agent_answer,
                             .pause_ms = agent_pause_ms},
    [KVPI_WORKLOAD_RAG] = {.mixed_percent = 20,
                           .n_prefixes = MAX_PREFIXES,
                           .base_tokens = 700,
                           .max_context = 32768,
                           .prefix = rag_document,
                           .turns = rag_turns,
                           .message = rag_message,
                           .answer = rag_answer,
                           .pause_ms = rag_pause_ms},
    [KVPI_WORKLOAD_USERS] = {.mixed_percent = 0,
                             .n_prefixes = 1,
                             .base_tokens = 0,
                             .max_context = 32768,
                             .prefix = users_prefix,
                             .turns = users_turns,
                             .message = users_message,
                             .answer = users_answer,
                             .pause_ms = users_pause_ms},
    [KVPI_WORKLOAD_AGENTS] = {.mixed_percent = 0,
                              .n_prefixes = 8,
                              .base_tokens = 0,
                              .max_context = 200000,
                              .dropped_permyriad = 1000,
                              .has_sessions = true,
                              .prefix = agents_prefix,
                              .turns = agents_turns,
                              .message = agents_message,
                              .answer = agents_answer,
                              .pause_ms = agents_delay_ms},
};

/* A start that many conversations share. Its ids: floor(base / BLOCK) of the kind's base, then own
 * ones up to floor(tokens / BLOCK). */
typedef struct prefix {
    uint32_t tokens;
    int64_t first_own_id;
} prefix;

typedef struct conversation {
    uint64_t serial;
    int64_t due_us;
    int64_t delay_ms; /* to the turn that is due; -1: it is the first */
    kvpi_draw draw;
    const kind *kind;
    uint32_t turns_left;
    uint32_t context; /* tokens before the next message */
    uint32_t message; /* tokens of the next message */
    size_t n_ids;     /* full blocks of the last prompt, or of the prefix */
    size_t capacity;
    int64_t *ids; /* [capacity] */
} conversation;

typedef struct arrivals {
    kvpi_draw draw;
    int64_t mean_us; /* 0: this kind does not occur */
    int64_t next_us;
    int64_t first_base_id;
    prefix prefixes[MAX_PREFIXES];
} arrivals;

struct kvpi_workload {
    arrivals arrivals[N_KINDS];
    uint64_t seed;
    uint64_t n_conversations;
    int64_t next_id;
    conversation **heap; /* [n_waiting] earliest due first */
    size_t n_waiting, capacity;
    conversation *current; /* whose ids the last request shows; to be put back or freed */
};

/* -------------------------------------------------------------------- conversations in time */

static bool is_before(const conversation *a, const conversation *b)
{
    return a->due_us != b->due_us ? a->due_us < b->due_us : a->serial < b->serial;
}

static int push(kvpi_workload *workload, conversation *talk)
{
    if (workload->n_waiting == workload->capacity) {
        size_t capacity = workload->capacity == 0 ? 64 : workload->capacity * 2;
        conversation **heap = realloc(workload->heap, capacity * sizeof *heap);
        if (heap == NULL)
            return -1;
        workload->heap = heap;
        workload->capacity = capacity;
    }
    size_t i = workload->n_waiting++;
    for (; i > 0 && is_before(talk, workload->heap[(i - 1) / 2]); i = (i - 1) / 2)
        workload->heap[i] = workload->heap[(i - 1) / 2];
    workload->heap[i] = talk;
    return 0;
}

static conversation *pop(kvpi_workload *workload)
{
    conversation **heap = workload->heap, *first = heap[0];
    conversation *last = heap[--workload->n_waiting];
    size_t i = 0;
    for (size_t child = 1; child < workload->n_waiting; child = 2 * i + 1) {
        if (child + 1 < workload->n_waiting && is_before(heap[child + 1], heap[child]))
            child++;
        if (!is_before(heap[child], last))
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = last;
    return first;
}

static void free_conversation(conversation *talk)
{
    if (talk == NULL)
        return;
    free(talk->ids);
    free(talk);
}

/* ---------------------------------------------------------------------------------- content */

static int reserve_ids(conversation *talk, size_t n)
{
    if (n <= talk->capacity)
        return 0;
    size_t capacity = talk->capacity * 2 > n ? talk->capacity * 2 : n;
    int64_t *ids = realloc(talk->ids, capacity * sizeof *ids);
    if (ids == NULL)
        return -1;
    talk->ids = ids;
    talk->capacity = capacity;
    return 0;
}

static int copy_prefix_ids(conversation *talk, const arrivals *from, const prefix *start)
{
    size_t n_base = talk->kind->base_tokens / BLOCK, n = start->tokens / BLOCK;
    if (reserve_ids(talk, n) != 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        talk->ids[i] = i < n_base ? from->first_base_id + (int64_t)i
                                  : start->first_own_id + (int64_t)(i - n_base);
    talk->n_ids = n;
    return 0;
}

/* Decides the next message and whether there is room for it. */
static bool plan_turn(conversation *talk)
{
    if (talk->turns_left == 0)
        return false;
    talk->message = kvpi_draw_from(&talk->draw, talk->kind->message);
    return talk->context + talk->message <= talk->kind->max_context;
}

static conversation *start_conversation(kvpi_workload *workload, const arrivals *from,
                                        const kind *of)
{
    conversation *talk = calloc(1, sizeof *talk);
    if (talk == NULL)
        return NULL;
    talk->serial = workload->n_conversations++;
    talk->due_us = from->next_us;
    talk->delay_ms = -1;
    talk->draw = kvpi_draw_seed(workload->seed, talk->serial);
    talk->kind = of;
    talk->turns_left = kvpi_draw_from(&talk->draw, of->turns);
    const prefix *start = &from->prefixes[kvpi_draw_rank(&talk->draw, of->n_prefixes)];
    talk->context = start->tokens;
    plan_turn(talk); /* a first message always fits: see the tables */
    if (copy_prefix_ids(talk, from, start) != 0) {
        free_conversation(talk);
        return NULL;
    }
    return talk;
}

/* Shows the prompt of the turn that is due, and moves the conversation past it. */
static int take_turn(kvpi_workload *workload, conversation *talk, kvpi_workload_request *request)
{
    uint32_t input = talk->context + talk->message;
    uint32_t output = kvpi_draw_from(&talk->draw, talk->kind->answer);
    size_t n_ids = (input + BLOCK - 1) / BLOCK;
    if (reserve_ids(talk, n_ids) != 0)
        return -1;
    for (size_t i = talk->n_ids; i < n_ids; i++)
        talk->ids[i] = workload->next_id++;
    *request =
        (kvpi_workload_request){.timestamp_ms = talk->due_us / 1000,
                                .session = talk->kind->has_sessions ? (int64_t)talk->serial : -1,
                                .delay_ms = talk->kind->has_sessions ? talk->delay_ms : -1,
                                .input_length = (int32_t)input,
                                .output_length = (int32_t)output,
                                .n_ids = n_ids,
                                .ids = talk->ids};
    talk->n_ids = input / BLOCK;
    const bool is_dropped = talk->kind->dropped_permyriad > 0 &&
                            kvpi_draw_below(&talk->draw, 10000) < talk->kind->dropped_permyriad;
    talk->context = is_dropped ? input : input + output;
    talk->turns_left--;
    talk->delay_ms = (int64_t)kvpi_draw_from(&talk->draw, talk->kind->pause_ms);
    talk->due_us += talk->delay_ms * 1000;
    return 0;
}

/* --------------------------------------------------------------------------------- arrivals */

/* The mean of a table in 1/1000, of draws rounded down: half of 1 less than that of the lines. */
static uint64_t mean_milli(const kvpi_draw_point *points)
{
    uint64_t sum = 0;
    for (; points[0].permyriad < 10000; points++)
        sum += (uint64_t)(points[1].permyriad - points[0].permyriad) *
               (points[0].value + points[1].value);
    return sum / 20 - 500;
}

/* Conversations arrive less often than requests by their mean number of turns. */
static int64_t mean_gap_us(const kvpi_workload_options *options, size_t kind_idx)
{
    bool mixed = options->profile == KVPI_WORKLOAD_MIXED;
    uint64_t percent = mixed                                  ? kinds[kind_idx].mixed_percent
                       : (size_t)options->profile == kind_idx ? 100
                                                              : 0;
    if (percent == 0)
        return 0;
    uint64_t turns_milli = mean_milli(kinds[kind_idx].turns);
    return (int64_t)(turns_milli * UINT64_C(100000000) / (percent * options->rate_milli));
}

static void make_prefixes(kvpi_workload *workload, arrivals *to, size_t kind_idx)
{
    const kind *of = &kinds[kind_idx];
    kvpi_draw draw = kvpi_draw_seed(workload->seed, STREAM_PREFIXES + kind_idx);
    size_t n_base = of->base_tokens / BLOCK;
    to->first_base_id = workload->next_id;
    workload->next_id += (int64_t)n_base;
    for (size_t i = 0; i < of->n_prefixes; i++) {
        prefix *made = &to->prefixes[i];
        made->tokens = of->base_tokens + kvpi_draw_from(&draw, of->prefix);
        made->first_own_id = workload->next_id;
        workload->next_id += (int64_t)(made->tokens / BLOCK - n_base);
    }
}

static void start_arrivals(kvpi_workload *workload, const kvpi_workload_options *options)
{
    for (size_t i = 0; i < N_KINDS; i++) {
        arrivals *of = &workload->arrivals[i];
        of->mean_us = mean_gap_us(options, i);
        if (of->mean_us == 0)
            continue;
        of->draw = kvpi_draw_seed(workload->seed, STREAM_ARRIVALS + i);
        of->next_us = kvpi_draw_gap(&of->draw, of->mean_us);
        make_prefixes(workload, of, i);
    }
}

/* Gives the kind whose next conversation comes first. */
static size_t earliest_arrival(const kvpi_workload *workload)
{
    size_t best = N_KINDS;
    for (size_t i = 0; i < N_KINDS; i++) {
        const arrivals *of = &workload->arrivals[i];
        if (of->mean_us > 0 && (best == N_KINDS || of->next_us < workload->arrivals[best].next_us))
            best = i;
    }
    return best;
}

/* Admits all that arrive before the next turn is due. */
static int admit_arrivals(kvpi_workload *workload)
{
    for (;;) {
        size_t i = earliest_arrival(workload);
        arrivals *of = &workload->arrivals[i];
        if (workload->n_waiting > 0 && workload->heap[0]->due_us < of->next_us)
            return 0;
        conversation *talk = start_conversation(workload, of, &kinds[i]);
        if (talk == NULL || push(workload, talk) != 0) {
            free_conversation(talk);
            return -1;
        }
        of->next_us += kvpi_draw_gap(&of->draw, of->mean_us);
    }
}

/* ------------------------------------------------------------------------------ the workload */

void kvpi_workload_options_init(kvpi_workload_options *options)
{
    *options =
        (kvpi_workload_options){.profile = KVPI_WORKLOAD_MIXED, .seed = 1, .rate_milli = 4000};
}

int kvpi_workload_create(const kvpi_workload_options *options, kvpi_workload **out)
{
    kvpi_workload *workload = calloc(1, sizeof *workload);
    if (workload == NULL)
        return -1;
    workload->seed = options->seed;
    start_arrivals(workload, options);
    *out = workload;
    return 0;
}

void kvpi_workload_destroy(kvpi_workload *workload)
{
    if (workload == NULL)
        return;
    for (size_t i = 0; i < workload->n_waiting; i++)
        free_conversation(workload->heap[i]);
    free_conversation(workload->current);
    free(workload->heap);
    free(workload);
}

/* The conversation of the last request goes back to wait for its next turn, or is over. */
static int put_back_current(kvpi_workload *workload)
{
    conversation *talk = workload->current;
    if (talk == NULL)
        return 0;
    if (plan_turn(talk)) {
        if (push(workload, talk) != 0)
            return -1;
    } else {
        free_conversation(talk);
    }
    workload->current = NULL;
    return 0;
}

int kvpi_workload_next(kvpi_workload *workload, kvpi_workload_request *request)
{
    if (put_back_current(workload) != 0 || admit_arrivals(workload) != 0)
        return -1;
    workload->current = pop(workload);
    return take_turn(workload, workload->current, request);
}

int kvpi_workload_write(FILE *file, const kvpi_workload_request *request)
{
    fputc('{', file);
    if (request->session >= 0)
        fprintf(file, "\"session_id\": %" PRId64 ", ", request->session);
    if (request->delay_ms >= 0)
        fprintf(file, "\"delay\": %" PRId64, request->delay_ms);
    else
        fprintf(file, "\"timestamp\": %" PRId64, request->timestamp_ms);
    fprintf(file,
            ", \"input_length\": %" PRId32 ", \"output_length\": %" PRId32 ", \"hash_ids\": [",
            request->input_length, request->output_length);
    for (size_t i = 0; i < request->n_ids; i++)
        fprintf(file, "%s%" PRId64, i == 0 ? "" : ", ", request->ids[i]);
    fputs("]}\n", file);
    return ferror(file) ? -1 : 0;
}
