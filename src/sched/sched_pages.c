/* sched_pages: the token arena. A chain's last page is filled from its start; all before it are
 * full. Freed chains are put in front of the free list whole, so freeing is O(1); pages that were
 * never used are handed out by number, so that creation touches none of them. */
#include "sched/sched_state.h"

#include <string.h>

static int32_t *page_tokens(const struct kvpi_pages *pages, uint32_t page)
{
    return &pages->tokens[(size_t)page * KVPI_PAGE_TOKENS];
}

static uint32_t take_page(struct kvpi_pages *pages)
{
    uint32_t page = pages->free;
    if (page != KVPI_NO_PAGE) {
        pages->free = pages->next[page];
    } else {
        page = pages->n_touched++;
    }
    pages->n_free--;
    return page;
}

/* Where the next token goes. */
static int32_t *next_place(struct kvpi_pages *pages, struct kvpi_chain *chain)
{
    const uint32_t offset = chain->n_tokens % KVPI_PAGE_TOKENS;
    if (offset == 0) {
        const uint32_t page = take_page(pages);
        pages->next[page] = KVPI_NO_PAGE;
        if (chain->head == KVPI_NO_PAGE) {
            chain->head = page;
        } else {
            pages->next[chain->tail] = page;
        }
        chain->tail = page;
    }
    return page_tokens(pages, chain->tail) + offset;
}

void kvpi_pages_append(struct kvpi_pages *pages, struct kvpi_chain *chain, int32_t token)
{
    *next_place(pages, chain) = token;
    chain->n_tokens++;
}

void kvpi_pages_append_many(struct kvpi_pages *pages, struct kvpi_chain *chain,
                            const int32_t *tokens, uint32_t n_tokens)
{
    while (n_tokens > 0) {
        int32_t *to = next_place(pages, chain);
        const uint32_t room = KVPI_PAGE_TOKENS - chain->n_tokens % KVPI_PAGE_TOKENS;
        const uint32_t n = n_tokens < room ? n_tokens : room;
        memcpy(to, tokens, n * sizeof(*tokens));
        chain->n_tokens += n;
        tokens += n;
        n_tokens -= n;
    }
}

void kvpi_pages_read(const struct kvpi_pages *pages, const struct kvpi_chain *chain,
                     struct kvpi_cursor *cursor, uint32_t from, uint32_t n_tokens,
                     int32_t *out_tokens)
{
    if (cursor->page == KVPI_NO_PAGE || from < cursor->from) {
        *cursor = (struct kvpi_cursor){chain->head, 0};
    }
    while (n_tokens > 0) {
        while (from - cursor->from >= KVPI_PAGE_TOKENS) {
            cursor->page = pages->next[cursor->page];
            cursor->from += KVPI_PAGE_TOKENS;
        }
        const uint32_t offset = from - cursor->from;
        const uint32_t room = KVPI_PAGE_TOKENS - offset;
        const uint32_t n = n_tokens < room ? n_tokens : room;
        memcpy(out_tokens, page_tokens(pages, cursor->page) + offset, n * sizeof(*out_tokens));
        out_tokens += n;
        from += n;
        n_tokens -= n;
    }
}

void kvpi_pages_free(struct kvpi_pages *pages, struct kvpi_chain *chain)
{
    if (chain->head != KVPI_NO_PAGE) {
        pages->next[chain->tail] = pages->free;
        pages->free = chain->head;
        pages->n_free += (chain->n_tokens + KVPI_PAGE_TOKENS - 1) / KVPI_PAGE_TOKENS;
    }
    *chain = kvpi_chain_empty();
}

int32_t *kvpi_pages_last(const struct kvpi_pages *pages, const struct kvpi_chain *chain)
{
    return page_tokens(pages, chain->tail) + (chain->n_tokens - 1) % KVPI_PAGE_TOKENS;
}
