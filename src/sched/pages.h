/* pages: the token arena. Pages of 64 tokens in chains, so that nothing is ever moved and no
 * room is lost between prompts of different lengths. Whoever appends has reserved before, so that
 * appending cannot fail. */
#ifndef KVPI_SCHED_PAGES_H
#define KVPI_SCHED_PAGES_H

#include <stdint.h>

#define KVPI_PAGE_TOKENS 64u
#define KVPI_NO_PAGE     UINT32_MAX

struct kvpi_chain {
    uint32_t head;
    uint32_t tail;
    uint32_t n_tokens;
};

/* A place in a chain that was read: page `page` holds tokens from `from` on. KVPI_NO_PAGE: at the
 * beginning. It saves the walk when reading goes on where it ended. */
struct kvpi_cursor {
    uint32_t page;
    uint32_t from;
};

struct kvpi_pages {
    int32_t *tokens; /* [n_pages][64] */
    uint32_t *next;  /* [n_pages] */
    uint32_t n_pages;
    uint32_t n_touched; /* pages that were ever used: the rest is free and not in the list */
    uint32_t free;
    uint32_t n_free; /* of both kinds */
    uint32_t n_reserved;
};

static inline struct kvpi_chain kvpi_chain_empty(void)
{
    return (struct kvpi_chain){KVPI_NO_PAGE, KVPI_NO_PAGE, 0};
}

static inline struct kvpi_cursor kvpi_cursor_start(void)
{
    return (struct kvpi_cursor){KVPI_NO_PAGE, 0};
}

void kvpi_pages_append(struct kvpi_pages *pages, struct kvpi_chain *chain, int32_t token);
void kvpi_pages_append_many(struct kvpi_pages *pages, struct kvpi_chain *chain,
                            const int32_t *tokens, uint32_t n_tokens);
void kvpi_pages_read(const struct kvpi_pages *pages, const struct kvpi_chain *chain,
                     struct kvpi_cursor *cursor, uint32_t from, uint32_t n_tokens,
                     int32_t *out_tokens);
void kvpi_pages_free(struct kvpi_pages *pages, struct kvpi_chain *chain);
int32_t *kvpi_pages_last(const struct kvpi_pages *pages, const struct kvpi_chain *chain);

#endif
