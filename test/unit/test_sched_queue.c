/* The scheduler's queue against a sorted array, and the token arena against plain arrays. */
#include <stdlib.h>
#include <string.h>

#include "sched/sched_state.h"
#include "world.h"

enum { N = 200, N_PAGES = 40, N_CHAINS = 6, MAX_CHAIN = 1000 };

struct element {
    struct kvpi_rank rank;
    int is_in;
};

static struct element elements[N];

static int is_better(uint32_t place, uint32_t than)
{
    return than == KVPI_QUEUE_NONE || kvpi_rank_before(&elements[place].rank, &elements[than].rank);
}

/* The smallest after `rank`, by looking at all. */
static uint32_t slow_after(const struct kvpi_rank *rank)
{
    uint32_t best = KVPI_QUEUE_NONE;
    for (uint32_t i = 0; i < N; i++) {
        const int is_after = rank == NULL || kvpi_rank_before(rank, &elements[i].rank);
        if (elements[i].is_in && is_after && is_better(i, best))
            best = i;
    }
    return best;
}

static uint32_t slow_before(const struct kvpi_rank *rank)
{
    uint32_t best = KVPI_QUEUE_NONE;
    for (uint32_t i = 0; i < N; i++) {
        const int is_before = rank == NULL || kvpi_rank_before(&elements[i].rank, rank);
        if (elements[i].is_in && is_before && (best == KVPI_QUEUE_NONE || !is_better(i, best)))
            best = i;
    }
    return best;
}

TEST(test_queue_is_a_sorted_list)
{
    struct kvpi_queue queue = {elements, sizeof *elements, KVPI_QUEUE_NONE, 0};
    uint64_t random = 3, arrival = 0;
    uint32_t n = 0;
    memset(elements, 0, sizeof elements);
    for (int i = 0; i < 20000; i++) {
        const uint32_t place = draw(&random, N);
        struct element *element = &elements[place];
        if (element->is_in) {
            kvpi_queue_remove(&queue, place);
            n--;
        } else {
            element->rank.arrival = ++arrival;
            element->rank.priority = (int32_t)draw(&random, 3) - 1;
            kvpi_queue_insert(&queue, place);
            n++;
        }
        element->is_in = !element->is_in;
        const struct kvpi_rank *rank = draw(&random, 4) ? &elements[draw(&random, N)].rank : NULL;
        assert_int_equal(queue.n, n);
        assert_int_equal(kvpi_queue_after(&queue, rank), slow_after(rank));
        assert_int_equal(kvpi_queue_before(&queue, rank), slow_before(rank));
    }
}

/* ---------------------------------------------------------------------------------------- pages */

struct text {
    struct kvpi_chain chain;
    struct kvpi_cursor cursor;
    int32_t tokens[MAX_CHAIN];
};

static int32_t storage[N_PAGES][KVPI_PAGE_TOKENS];
static uint32_t next[N_PAGES];
static struct text texts[N_CHAINS];

static uint32_t pages_for(uint32_t n_tokens)
{
    return (n_tokens + KVPI_PAGE_TOKENS - 1) / KVPI_PAGE_TOKENS;
}

static void grow(struct kvpi_pages *pages, struct text *text, uint64_t *random)
{
    uint32_t n = draw(random, 200);
    const uint32_t have = text->chain.n_tokens;
    if (have + n > MAX_CHAIN || pages_for(have + n) - pages_for(have) > pages->n_free)
        return;
    for (uint32_t i = 0; i < n; i++)
        text->tokens[have + i] = (int32_t)draw(random, 1000000);
    if (n < 3)
        for (uint32_t i = 0; i < n; i++)
            kvpi_pages_append(pages, &text->chain, text->tokens[have + i]);
    else
        kvpi_pages_append_many(pages, &text->chain, text->tokens + have, n);
}

static void compare(struct kvpi_pages *pages, struct text *text, uint64_t *random)
{
    int32_t read[MAX_CHAIN];
    const uint32_t n_tokens = text->chain.n_tokens;
    if (n_tokens == 0)
        return;
    const uint32_t from = draw(random, n_tokens);
    const uint32_t n = 1 + draw(random, n_tokens - from);
    kvpi_pages_read(pages, &text->chain, &text->cursor, from, n, read);
    assert_memory_equal(read, text->tokens + from, n * sizeof *read);
    assert_int_equal(*kvpi_pages_last(pages, &text->chain), text->tokens[n_tokens - 1]);
}

TEST(test_pages_hold_what_was_appended)
{
    struct kvpi_pages pages = {&storage[0][0], next, N_PAGES, 0, KVPI_NO_PAGE, N_PAGES, 0};
    uint64_t random = 4;
    for (int i = 0; i < N_CHAINS; i++) {
        texts[i].chain = kvpi_chain_empty();
        texts[i].cursor = kvpi_cursor_start();
    }
    for (int i = 0; i < 20000; i++) {
        struct text *text = &texts[draw(&random, N_CHAINS)];
        if (draw(&random, 8) == 0) {
            kvpi_pages_free(&pages, &text->chain);
            text->cursor = kvpi_cursor_start();
        } else {
            grow(&pages, text, &random);
        }
        compare(&pages, &texts[draw(&random, N_CHAINS)], &random);
        uint32_t n_used = 0;
        for (int j = 0; j < N_CHAINS; j++)
            n_used += pages_for(texts[j].chain.n_tokens);
        assert_int_equal(pages.n_free, N_PAGES - n_used);
    }
}

TEST_MAIN(NULL, NULL)
