/* Owns ARC (Megiddo and Modha 2003) and S3-FIFO (Yang et al. 2023) for contents of which each but
 * the first of a prompt continues another, its parent.
 *
 *   cached    FIRST   ARC's T1, S3-FIFO's small queue: came once
 *             SECOND  ARC's T2, S3-FIFO's main queue: came again
 *   evicted   GHOST_FIRST, GHOST_SECOND (ARC's B1 and B2, S3-FIFO's ghosts): remembered, in the
 *             order of their eviction
 *             EXPECTED: a ghost that was looked up, and goes to SECOND when its request ends
 *
 * A queue's victim is its oldest leaf: the content that entered it first (ARC: was used last
 * longest ago) of those that no request uses and of which no child is cached. The leaves of a queue
 * are a heap by age. If a queue has no leaf, the other one has, or all contents are in use: a
 * content that no request uses has only such descendants.
 */
#include "tool/mrc/policies/adaptive.h"

#include <stdlib.h>
#include <string.h>

#define NOBODY KVPI_MRC_NOBODY

typedef enum place { NOWHERE, FIRST, SECOND, GHOST_FIRST, GHOST_SECOND, EXPECTED } place;

enum { MOST_USES = 3, PROMOTED_USES = 2 };

/* Contents, the oldest at [0]. */
typedef struct heap {
    uint32_t *of;
    uint32_t n;
} heap;

typedef struct ghosts {
    uint32_t head, tail;
    uint64_t n;
} ghosts;

struct kvpi_mrc_adaptive {
    uint32_t n_contents;
    uint32_t *parent;        /* [n_contents] NOBODY: a prompt begins with it */
    uint32_t *n_children;    /* [n_contents] that are cached */
    uint64_t *age;           /* [n_contents] of those cached: smaller is older */
    uint32_t *at;            /* [n_contents] in the heap of its queue; NOBODY: it is no leaf */
    uint32_t *next, *prev;   /* [n_contents] of ghosts */
    uint8_t *place, *in_use; /* [n_contents] */
    uint8_t *uses;           /* [n_contents] S3-FIFO's, up to MOST_USES */
    heap leaves[SECOND + 1]; /* by place */
    uint64_t n[SECOND + 1];  /* cached, by place */
    ghosts ghosts[2];
    bool is_arc; /* else S3-FIFO */
    uint64_t blocks, clock;
    double target;        /* ARC's p: of FIRST */
    bool ghost_of_second; /* the last one looked up was such */
    bool has_evicted;
};

/* ---------------------------------------------------------------------------------- the leaves */

static void put(kvpi_mrc_adaptive *a, heap *h, uint32_t i, uint32_t content)
{
    h->of[i] = content;
    a->at[content] = i;
}

static void sift_up(kvpi_mrc_adaptive *a, heap *h, uint32_t i)
{
    const uint32_t content = h->of[i];
    for (; i > 0 && a->age[content] < a->age[h->of[(i - 1) / 2]]; i = (i - 1) / 2)
        put(a, h, i, h->of[(i - 1) / 2]);
    put(a, h, i, content);
}

static void sift_down(kvpi_mrc_adaptive *a, heap *h, uint32_t i)
{
    const uint32_t content = h->of[i];
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child + 1 < h->n && a->age[h->of[child + 1]] < a->age[h->of[child]])
            child++;
        if (child >= h->n || a->age[content] < a->age[h->of[child]])
            break;
        put(a, h, i, h->of[child]);
        i = child;
    }
    put(a, h, i, content);
}

static void add_leaf(kvpi_mrc_adaptive *a, uint32_t content)
{
    heap *h = &a->leaves[a->place[content]];
    h->of[h->n] = content;
    sift_up(a, h, h->n++);
}

static void drop_leaf(kvpi_mrc_adaptive *a, uint32_t content)
{
    heap *h = &a->leaves[a->place[content]];
    const uint32_t i = a->at[content];
    if (i == NOBODY)
        return;
    a->at[content] = NOBODY;
    const uint32_t last = h->of[--h->n];
    if (i == h->n)
        return;
    put(a, h, i, last);
    sift_up(a, h, i);
    sift_down(a, h, a->at[last]);
}

static uint32_t oldest_leaf(const kvpi_mrc_adaptive *a, place queue)
{
    return a->leaves[queue].n > 0 ? a->leaves[queue].of[0] : NOBODY;
}

/* ---------------------------------------------------------------------------------- the queues */

static void enter(kvpi_mrc_adaptive *a, uint32_t content, place queue)
{
    a->place[content] = (uint8_t)queue;
    a->age[content] = a->clock++;
    a->n[queue]++;
    if (a->n_children[content] == 0)
        add_leaf(a, content);
}

static void leave(kvpi_mrc_adaptive *a, uint32_t content)
{
    drop_leaf(a, content);
    a->n[a->place[content]]--;
    a->place[content] = NOWHERE;
}

/* One child less is cached. The parent is cached, for it is never evicted before. */
static void lose_child(kvpi_mrc_adaptive *a, uint32_t content)
{
    const uint32_t parent = a->parent[content];
    if (parent != NOBODY && --a->n_children[parent] == 0 && !a->in_use[parent])
        add_leaf(a, parent);
}

/* ---------------------------------------------------------------------------------- the ghosts */

static bool is_ghost(const kvpi_mrc_adaptive *a, uint32_t content)
{
    return a->place[content] == GHOST_FIRST || a->place[content] == GHOST_SECOND;
}

static void add_ghost(kvpi_mrc_adaptive *a, uint32_t content, place as)
{
    ghosts *list = &a->ghosts[as - GHOST_FIRST];
    a->place[content] = (uint8_t)as;
    a->next[content] = NOBODY;
    a->prev[content] = list->tail;
    if (list->tail == NOBODY)
        list->head = content;
    else
        a->next[list->tail] = content;
    list->tail = content;
    list->n++;
}

static void drop_ghost(kvpi_mrc_adaptive *a, uint32_t content)
{
    ghosts *list = &a->ghosts[a->place[content] - GHOST_FIRST];
    const uint32_t next = a->next[content], prev = a->prev[content];
    if (prev == NOBODY)
        list->head = next;
    else
        a->next[prev] = next;
    if (next == NOBODY)
        list->tail = prev;
    else
        a->prev[next] = prev;
    list->n--;
    a->place[content] = NOWHERE;
}

static void trim(kvpi_mrc_adaptive *a)
{
    ghosts *first = &a->ghosts[0], *second = &a->ghosts[1];
    if (!a->is_arc) {
        while (first->n > a->blocks * 9 / 10)
            drop_ghost(a, first->head);
        return;
    }
    while (first->n > 0 && a->n[FIRST] + first->n > a->blocks)
        drop_ghost(a, first->head);
    while (second->n > 0 && a->n[FIRST] + a->n[SECOND] + first->n + second->n > 2 * a->blocks)
        drop_ghost(a, second->head);
}

/* ------------------------------------------------------------------------------------ evicting */

static uint32_t drop(kvpi_mrc_adaptive *a, uint32_t content)
{
    const place from = (place)a->place[content];
    leave(a, content);
    if (a->is_arc || from == FIRST)
        add_ghost(a, content, from == FIRST ? GHOST_FIRST : GHOST_SECOND);
    if (!a->is_arc)
        trim(a);
    lose_child(a, content);
    a->has_evicted = true;
    return content;
}

static uint32_t evict_arc(kvpi_mrc_adaptive *a)
{
    const uint32_t first = oldest_leaf(a, FIRST), second = oldest_leaf(a, SECOND);
    const double n_first = (double)a->n[FIRST];
    const bool from_first =
        n_first > a->target || (n_first >= a->target && n_first > 0 && a->ghost_of_second);
    const uint32_t chosen = (from_first && first != NOBODY) || second == NOBODY ? first : second;
    return chosen == NOBODY ? NOBODY : drop(a, chosen);
}

static uint64_t small_blocks(const kvpi_mrc_adaptive *a)
{
    return a->blocks >= 10 ? a->blocks / 10 : 1;
}

/* Each turn evicts, promotes, or takes a use from one: there are not so many. The queue that is
 * chosen first is left only when it has no leaf. */
static uint32_t evict_s3fifo(kvpi_mrc_adaptive *a)
{
    place from = a->n[SECOND] > a->blocks - small_blocks(a) ? SECOND : FIRST;
    for (;;) {
        if (oldest_leaf(a, from) == NOBODY)
            from = from == FIRST ? SECOND : FIRST;
        const uint32_t content = oldest_leaf(a, from);
        if (content == NOBODY)
            return NOBODY;
        if (a->uses[content] < (from == SECOND ? 1 : PROMOTED_USES))
            return drop(a, content);
        a->uses[content] = from == SECOND ? (uint8_t)(a->uses[content] - 1) : 0;
        leave(a, content);
        enter(a, content, SECOND);
    }
}

/* -------------------------------------------------------------------------------------- public */

static void find_parents(kvpi_mrc_adaptive *a, const kvpi_mrc_refs *refs)
{
    memset(a->parent, 0xff, (size_t)a->n_contents * sizeof *a->parent);
    for (size_t r = 0; r < refs->n_requests; r++) {
        const kvpi_mrc_request *request = &refs->requests[r];
        const uint32_t *contents = refs->contents + request->first;
        for (uint32_t i = 1; i < request->n_full; i++)
            a->parent[contents[i]] = contents[i - 1];
    }
}

kvpi_mrc_adaptive *kvpi_mrc_adaptive_make(const kvpi_mrc_refs *refs)
{
    const size_t n = (size_t)refs->n_contents + 1;
    kvpi_mrc_adaptive *a = calloc(1, sizeof *a);
    if (a == NULL)
        return NULL;
    a->n_contents = refs->n_contents;
    uint32_t **const arrays[] = {
        &a->parent,           &a->n_children,       &a->at, &a->next, &a->prev,
        &a->leaves[FIRST].of, &a->leaves[SECOND].of};
    uint8_t **const bytes[] = {&a->place, &a->in_use, &a->uses};
    bool fine = (a->age = malloc(n * sizeof *a->age)) != NULL;
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        fine = (*arrays[i] = malloc(n * sizeof **arrays[i])) != NULL && fine;
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
        fine = (*bytes[i] = malloc(n)) != NULL && fine;
    if (!fine) {
        kvpi_mrc_adaptive_free(a);
        return NULL;
    }
    find_parents(a, refs);
    return a;
}

void kvpi_mrc_adaptive_free(kvpi_mrc_adaptive *a)
{
    if (a == NULL)
        return;
    free(a->parent);
    free(a->n_children);
    free(a->age);
    free(a->at);
    free(a->next);
    free(a->prev);
    free(a->place);
    free(a->in_use);
    free(a->uses);
    free(a->leaves[FIRST].of);
    free(a->leaves[SECOND].of);
    free(a);
}

void kvpi_mrc_adaptive_begin(kvpi_mrc_adaptive *a, bool is_arc, uint64_t blocks)
{
    const size_t n = a->n_contents;
    memset(a->n_children, 0, n * sizeof *a->n_children);
    memset(a->at, 0xff, n * sizeof *a->at);
    memset(a->place, NOWHERE, n);
    memset(a->in_use, 0, n);
    memset(a->uses, 0, n);
    memset(a->n, 0, sizeof a->n);
    a->leaves[FIRST].n = a->leaves[SECOND].n = 0;
    a->ghosts[0] = a->ghosts[1] = (ghosts){.head = NOBODY, .tail = NOBODY};
    a->is_arc = is_arc;
    a->blocks = blocks;
    a->clock = 0;
    a->target = 0;
    a->ghost_of_second = a->has_evicted = false;
}

/* ARC learns: a hit in its ghosts moves the border between the queues. */
static void adapt(kvpi_mrc_adaptive *a, bool of_second)
{
    const double n = (double)a->ghosts[of_second].n, n_other = (double)a->ghosts[!of_second].n;
    const double step = n_other > n ? n_other / n : 1, most = (double)a->blocks;
    if (of_second)
        a->target = step < a->target ? a->target - step : 0;
    else
        a->target = a->target + step < most ? a->target + step : most;
}

void kvpi_mrc_adaptive_miss(kvpi_mrc_adaptive *a, uint32_t content)
{
    a->ghost_of_second = a->place[content] == GHOST_SECOND;
    if (!is_ghost(a, content))
        return;
    adapt(a, a->ghost_of_second);
    drop_ghost(a, content);
    a->place[content] = EXPECTED;
}

void kvpi_mrc_adaptive_hold(kvpi_mrc_adaptive *a, uint32_t content)
{
    drop_leaf(a, content);
    a->in_use[content] = 1;
}

uint32_t kvpi_mrc_adaptive_evict(kvpi_mrc_adaptive *a)
{
    return a->is_arc ? evict_arc(a) : evict_s3fifo(a);
}

static void use(kvpi_mrc_adaptive *a, uint32_t content)
{
    if (a->is_arc) {
        leave(a, content);
        enter(a, content, SECOND);
        return;
    }
    if (a->uses[content] < MOST_USES)
        a->uses[content]++;
    if (a->n_children[content] == 0)
        add_leaf(a, content);
}

static void store(kvpi_mrc_adaptive *a, uint32_t content)
{
    const bool is_small_full = !a->is_arc && !a->has_evicted && a->n[FIRST] >= small_blocks(a);
    const bool returns = is_ghost(a, content) || a->place[content] == EXPECTED;
    if (is_ghost(a, content))
        drop_ghost(a, content);
    a->uses[content] = 0;
    enter(a, content, returns || is_small_full ? SECOND : FIRST);
    if (a->parent[content] != NOBODY)
        a->n_children[a->parent[content]]++;
    trim(a);
}

void kvpi_mrc_adaptive_close(kvpi_mrc_adaptive *a, uint32_t content, bool was_cached)
{
    a->in_use[content] = 0;
    a->ghost_of_second = false;
    if (was_cached)
        use(a, content);
    else
        store(a, content);
}
