/* Owns the waiting of a closed loop.
 *
 *   request --(all it waits for has ended)--> heap, by its arrival --> arrived --> ended
 *
 * The gap of a request is its recorded start less the latest recorded end of what it waits for. It
 * arrives so long after the latest simulated end. If an end is not recorded, the gap is from start
 * to start less the time that was simulated, at least 0. If the gap is negative, requests
 * overlapped: it arrives as long after its predecessor's arrival as recorded.
 *
 * A session is what follows from a request that waits for no other; sessions are numbered in the
 * order of the trace.
 */
#include "tool/replay/closed/closed.h"

#include <stdlib.h>
#include <string.h>

#include "tool/requests/workload_draw.h"
#include "tool/tool.h"

#define NONE  KVPI_REQUESTS_NONE
#define NEVER UINT64_MAX

typedef enum how {
    STARTS_SESSION,
    AFTER_ENDS,
    AFTER_START /* of its predecessor */
} how;

typedef struct waiting {
    uint32_t session;
    uint32_t n_waits; /* for so many ends */
    how how;
    int64_t gap_us; /* after known ends */
    uint64_t ready_ns, start_ns;
} waiting;

typedef struct session {
    uint32_t root;   /* place of its first request */
    uint32_t n_left; /* requests that have not ended */
    uint32_t n_there;
    bool is_dead; /* a request was rejected */
} session;

typedef struct arrival {
    uint64_t ns;
    uint32_t number, place;
} arrival;

struct kvpi_closed {
    kvpi_closed_options options;
    const kvpi_requests *requests;
    size_t n;
    waiting *all;        /* [n] by place */
    uint32_t *first;     /* [n + 1] of a request's followers, up to that of the next request */
    uint32_t *followers; /* places */
    uint32_t *places;    /* [of the trace] by number */
    session *sessions;   /* [n_sessions] */
    size_t n_sessions, n_started, n_over;
    arrival *heap; /* [n_waiting] */
    size_t n_waiting;
    kvpi_load_sessions told;
};

static const kvpi_request *get(const kvpi_closed *closed, size_t place)
{
    return kvpi_requests_get(closed->requests, place);
}

/* ------------------------------------------------------------------------------------ the heap */

static bool is_before(const arrival *a, const arrival *b)
{
    return a->ns != b->ns ? a->ns < b->ns : a->number < b->number;
}

static void push(kvpi_closed *closed, uint32_t place, uint64_t ns)
{
    const arrival made = {ns, get(closed, place)->number, place};
    size_t i = closed->n_waiting++;
    for (; i > 0 && is_before(&made, &closed->heap[(i - 1) / 2]); i = (i - 1) / 2)
        closed->heap[i] = closed->heap[(i - 1) / 2];
    closed->heap[i] = made;
    closed->all[place].start_ns = ns;
}

static void pop(kvpi_closed *closed)
{
    arrival *heap = closed->heap;
    const arrival last = heap[--closed->n_waiting];
    size_t i = 0;
    for (size_t child = 1; child < closed->n_waiting; child = 2 * i + 1) {
        if (child + 1 < closed->n_waiting && is_before(&heap[child + 1], &heap[child]))
            child++;
        if (!is_before(&heap[child], &last))
            break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = last;
}

/* -------------------------------------------------------------------------- who waits for whom */

/* Gives NONE when it is none of the first n. */
static uint32_t place_of(const kvpi_closed *closed, uint32_t number)
{
    return number != NONE && closed->places[number] < closed->n ? closed->places[number] : NONE;
}

/* What a request waits for, one after the other: `at` is NULL before the first. */
static uint32_t next_awaited(const kvpi_closed *closed, const kvpi_request *request, uint32_t *join,
                             bool *is_first)
{
    const kvpi_requests_join *joins = kvpi_requests_joins(closed->requests);
    uint32_t place = NONE;
    if (*is_first) {
        *is_first = false;
        *join = request->joins;
        place = place_of(closed, request->after);
    }
    for (; place == NONE && *join != NONE; *join = joins[*join].next)
        place = place_of(closed, joins[*join].number);
    return place;
}

static int64_t end_of(const kvpi_request *request, const kvpi_request *awaited)
{
    if (request->is_delay)
        return awaited->timestamp_us;
    return awaited->lasts_us == KVPI_REQUESTS_NO_END ? INT64_MIN
                                                     : awaited->timestamp_us + awaited->lasts_us;
}

static void find_gap(kvpi_closed *closed, size_t place)
{
    const kvpi_request *request = get(closed, place);
    waiting *of = &closed->all[place];
    uint32_t join = NONE, awaited;
    bool is_first = true;
    int64_t latest = INT64_MIN;
    of->how = place_of(closed, request->after) == NONE ? STARTS_SESSION : AFTER_ENDS;
    if (of->how == STARTS_SESSION)
        return;
    while ((awaited = next_awaited(closed, request, &join, &is_first)) != NONE) {
        const int64_t end = end_of(request, get(closed, awaited));
        latest = end > latest ? end : latest;
        closed->told.estimated += end == INT64_MIN;
        of->n_waits++;
    }
    of->gap_us = latest == INT64_MIN ? 0 : request->timestamp_us - latest;
    if (of->gap_us >= 0)
        return;
    of->how = AFTER_START;
    of->n_waits = 1;
    closed->told.overlapping++;
}

/* Goes through those that each request waits for: counts them by `first`, or fills them in from the
 * ends of their parts, after which `first` is where they begin. */
static void visit_followers(kvpi_closed *closed, bool is_filling)
{
    for (size_t i = closed->n; i-- > 0;) {
        const kvpi_request *request = get(closed, i);
        uint32_t join = NONE, awaited;
        bool is_first = true;
        if (closed->all[i].how == STARTS_SESSION)
            continue;
        while ((awaited = next_awaited(closed, request, &join, &is_first)) != NONE) {
            if (is_filling)
                closed->followers[--closed->first[awaited]] = (uint32_t)i;
            else
                closed->first[awaited]++;
            if (closed->all[i].how == AFTER_START)
                break;
        }
    }
}

static bool link_followers(kvpi_closed *closed)
{
    visit_followers(closed, false);
    for (size_t i = 1; i <= closed->n; i++)
        closed->first[i] += closed->first[i - 1];
    closed->followers = malloc((closed->first[closed->n] + 1u) * sizeof *closed->followers);
    if (closed->followers != NULL)
        visit_followers(closed, true);
    return closed->followers != NULL;
}

static void find_sessions(kvpi_closed *closed)
{
    const size_t n_all = kvpi_requests_count(closed->requests);
    for (uint32_t number = 0; number < n_all; number++) {
        const uint32_t place = place_of(closed, number);
        if (place == NONE)
            continue;
        waiting *of = &closed->all[place];
        of->session = of->how == STARTS_SESSION
                          ? (uint32_t)closed->n_sessions++
                          : closed->all[place_of(closed, get(closed, place)->after)].session;
        if (of->how == STARTS_SESSION)
            closed->sessions[of->session].root = place;
        closed->sessions[of->session].n_left++;
    }
}

/* -------------------------------------------------------------------------------- the sessions */

static void start_session(kvpi_closed *closed, uint64_t ns)
{
    push(closed, closed->sessions[closed->n_started++].root, ns);
}

static int start_sessions(kvpi_closed *closed)
{
    const kvpi_closed_options *options = &closed->options;
    if (options->sessions > 0) {
        while (closed->n_started < closed->n_sessions && closed->n_started < options->sessions)
            start_session(closed, 0);
        return TOOL_OK;
    }
    kvpi_draw draw = kvpi_draw_seed(options->seed, 0);
    const int64_t first_us = get(closed, 0)->timestamp_us;
    uint64_t ns = 0, most = 0;
    while (closed->n_started < closed->n_sessions) {
        const uint32_t root = closed->sessions[closed->n_started].root;
        if (options->rate_milli == 0)
            ns = (uint64_t)(get(closed, root)->timestamp_us - first_us) * 1000;
        start_session(closed, ns);
        most = ns > most ? ns : most;
        if (options->rate_milli > 0)
            ns +=
                (uint64_t)kvpi_draw_gap(&draw, (int64_t)(1000000000u / options->rate_milli)) * 1000;
    }
    if (options->rate_milli == 0 && most == 0 && closed->n_sessions > 1)
        return kvpi_tool_fail("replay",
                              "all %zu sessions of the trace start at the same time: say "
                              "--sessions N (at once) or --session-rate R (a second)",
                              closed->n_sessions);
    return TOOL_OK;
}

static void end_session(kvpi_closed *closed, session *of, uint64_t now_ns)
{
    closed->n_over++;
    closed->told.rejected += of->is_dead;
    closed->told.dropped += of->n_left;
    if (closed->options.sessions == 0)
        return;
    if (closed->n_started < closed->n_sessions)
        start_session(closed, now_ns);
    else if (closed->told.window_ns == NEVER)
        closed->told.window_ns = now_ns;
}

static bool lay_out(kvpi_closed *closed)
{
    const size_t n_all = kvpi_requests_count(closed->requests), n = closed->n;
    closed->all = calloc(n, sizeof *closed->all);
    closed->first = calloc(n + 1, sizeof *closed->first);
    closed->places = malloc(n_all * sizeof *closed->places);
    closed->sessions = calloc(n, sizeof *closed->sessions);
    closed->heap = malloc(n * sizeof *closed->heap);
    if (closed->all == NULL || closed->first == NULL || closed->places == NULL ||
        closed->sessions == NULL || closed->heap == NULL)
        return false;
    for (size_t i = 0; i < n_all; i++)
        closed->places[get(closed, i)->number] = (uint32_t)i;
    for (size_t i = 0; i < n; i++)
        find_gap(closed, i);
    find_sessions(closed);
    return link_followers(closed);
}

int kvpi_closed_create(const kvpi_requests *requests, size_t n, const kvpi_closed_options *options,
                       kvpi_closed **out)
{
    kvpi_closed *closed = calloc(1, sizeof *closed);
    int status = TOOL_FAILED;
    if (closed != NULL) {
        closed->options = *options;
        closed->requests = requests;
        closed->n = n;
        closed->told.window_ns = NEVER;
    }
    if (kvpi_requests_describe(requests)->sessions == 0)
        (void)kvpi_tool_fail("replay",
                             "--arrivals closed needs a trace with sessions; this one, "
                             "%s, has none",
                             kvpi_requests_format_name(kvpi_requests_get_format(requests)));
    else if (closed == NULL || !lay_out(closed))
        (void)kvpi_tool_fail("replay", "out of memory for %zu requests", n);
    else
        status = start_sessions(closed);
    if (status != TOOL_OK) {
        kvpi_closed_free(closed);
        return status;
    }
    *out = closed;
    return TOOL_OK;
}

void kvpi_closed_free(kvpi_closed *closed)
{
    if (closed == NULL)
        return;
    free(closed->all);
    free(closed->first);
    free(closed->followers);
    free(closed->places);
    free(closed->sessions);
    free(closed->heap);
    free(closed);
}

/* ------------------------------------------------------------------------------------ arrivals */

/* As the options have it. */
static uint64_t gap_ns(const kvpi_closed *closed, int64_t us)
{
    const kvpi_closed_options *options = &closed->options;
    const double most = (double)options->cap_milli * 1e6;
    double ns = (double)us * (double)options->think_milli;
    if (options->cap_milli > 0 && ns > most)
        ns = most;
    return ns <= 0 ? 0 : (uint64_t)ns;
}

/* One of those that `follower` waits for ended, or arrived, at `ns`. */
static void note(kvpi_closed *closed, uint32_t follower, size_t place, uint64_t ns)
{
    const kvpi_request *request = get(closed, follower), *awaited = get(closed, place);
    waiting *of = &closed->all[follower];
    const int64_t apart_us = request->timestamp_us - awaited->timestamp_us;
    int64_t gap_us = of->gap_us;
    if (of->how == AFTER_ENDS && end_of(request, awaited) == INT64_MIN)
        gap_us = apart_us - (int64_t)((ns - closed->all[place].start_ns) / 1000);
    const uint64_t ready = of->how == AFTER_START
                               ? ns + (uint64_t)(apart_us > 0 ? apart_us : 0) * 1000
                               : ns + gap_ns(closed, gap_us);
    of->ready_ns = ready > of->ready_ns ? ready : of->ready_ns;
    if (--of->n_waits == 0)
        push(closed, follower, of->ready_ns);
}

static void note_all(kvpi_closed *closed, size_t place, how which, uint64_t ns)
{
    for (uint32_t k = closed->first[place]; k < closed->first[place + 1]; k++)
        if (closed->all[closed->followers[k]].how == which)
            note(closed, closed->followers[k], place, ns);
}

bool kvpi_closed_next(kvpi_closed *closed, size_t *out_place, uint64_t *out_ns)
{
    while (closed->n_waiting > 0 &&
           closed->sessions[closed->all[closed->heap[0].place].session].is_dead)
        pop(closed);
    if (closed->n_waiting == 0)
        return false;
    *out_place = closed->heap[0].place;
    *out_ns = closed->heap[0].ns;
    return true;
}

void kvpi_closed_arrived(kvpi_closed *closed)
{
    const arrival is = closed->heap[0];
    pop(closed);
    closed->sessions[closed->all[is.place].session].n_there++;
    note_all(closed, is.place, AFTER_START, is.ns);
}

void kvpi_closed_ended(kvpi_closed *closed, size_t place, uint64_t now_ns, bool rejected)
{
    session *of = &closed->sessions[closed->all[place].session];
    of->n_left--;
    of->n_there--;
    of->is_dead = of->is_dead || (rejected && !closed->options.goes_on);
    if (!of->is_dead)
        note_all(closed, place, AFTER_ENDS, now_ns);
    if (of->n_left == 0 || (of->is_dead && of->n_there == 0))
        end_session(closed, of, now_ns);
}

bool kvpi_closed_is_dropped(const kvpi_closed *closed, size_t place)
{
    return closed->sessions[closed->all[place].session].is_dead;
}

void kvpi_closed_tell(const kvpi_closed *closed, kvpi_load_sessions *out)
{
    *out = closed->told;
    out->closed = true;
    out->sessions = closed->n_sessions;
    out->at_once = closed->options.sessions;
    out->rate_milli = closed->options.rate_milli;
    out->think_milli = closed->options.think_milli;
    out->cap_milli = closed->options.cap_milli;
    out->over = closed->n_over;
}
