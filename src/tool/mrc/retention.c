/* Owns the retention curve. A content is used when a request arrives that has it, in its prompt or
 * its output. It is hit if it was used no longer ago than it is kept. It takes a block from each
 * use until the next one, or until its time is over. What stands before it is used with it, so no
 * hit lacks its beginning.
 *
 * A gap between two uses belongs to the shortest time that holds it. Times that are shorter pay for
 * their own length of it, the others for all of it.
 */
#include "tool/mrc/retention.h"

#include <stdlib.h>

#include "tool/tool.h"

#define SECOND INT64_C(1000000)

static const int64_t seconds[KVPI_MRC_RETENTIONS - 1] = {1,    10,    60,    300,   900,
                                                         3600, 21600, 86400, 604800};

/* By the shortest time that holds a gap. */
typedef struct gaps {
    double tokens[KVPI_MRC_RETENTIONS]; /* hit */
    double n[KVPI_MRC_RETENTIONS];
    double us[KVPI_MRC_RETENTIONS]; /* in all */
    double sampled_tokens;          /* looked up */
} gaps;

static size_t class_of(const kvpi_mrc_retention *out, int64_t us)
{
    size_t i = 0;
    while (i + 1 < out->n && us > out->kept[i].us)
        i++;
    return i;
}

static void count_gap(gaps *found, size_t i, int64_t us)
{
    found->n[i]++;
    found->us[i] += (double)us;
}

static void use(const kvpi_mrc_refs *refs, const kvpi_mrc_request *request, int64_t now,
                int64_t *used, const kvpi_mrc_retention *out, gaps *found)
{
    for (uint32_t k = 0; k < request->n_full; k++) {
        const uint32_t content = refs->contents[request->first + k];
        const uint32_t tokens =
            k + 1 == request->n_prompt ? request->last_tokens : (uint32_t)refs->block_tokens;
        const bool is_looked_up = k < request->n_prompt;
        if (is_looked_up)
            found->sampled_tokens += tokens;
        if (used[content] >= 0) {
            const size_t i = class_of(out, now - used[content]);
            count_gap(found, i, now - used[content]);
            found->tokens[i] += is_looked_up ? tokens : 0;
        }
        used[content] = now;
    }
}

static void sum_up(const kvpi_mrc_refs *refs, const gaps *found, int64_t span,
                   kvpi_mrc_retention *out)
{
    const double expected = (double)refs->looked_up_tokens * refs->rate;
    double tokens = 0, shorter_us = 0, n_longer = 0;
    for (size_t i = 0; i < out->n; i++)
        n_longer += found->n[i];
    for (size_t i = 0; i < out->n; i++) {
        tokens += found->tokens[i];
        shorter_us += found->us[i];
        n_longer -= found->n[i];
        const double own = n_longer > 0 ? n_longer * (double)out->kept[i].us : 0;
        const double hit = refs->rate < 1 ? tokens + expected - found->sampled_tokens : tokens;
        out->kept[i].hit_tokens = hit > 0 ? hit / refs->rate : 0;
        out->kept[i].mean_blocks =
            span > 0 ? (shorter_us + own) / (double)span / refs->rate : refs->n_contents;
    }
}

int kvpi_mrc_retention_make(const kvpi_mrc_refs *refs, const kvpi_requests *requests,
                            kvpi_mrc_retention *out)
{
    const int64_t begin = kvpi_requests_get(requests, 0)->timestamp_us;
    const int64_t end = kvpi_requests_get(requests, refs->n_requests - 1)->timestamp_us;
    gaps found = {.sampled_tokens = 0};
    int64_t *used = malloc(((size_t)refs->n_contents + 1) * sizeof *used);
    if (used == NULL)
        return kvpi_tool_fail("mrc", "out of memory for the time that content is kept");
    for (uint32_t i = 0; i < refs->n_contents; i++)
        used[i] = -1;
    *out = (kvpi_mrc_retention){.n = 0};
    while (out->n + 1 < KVPI_MRC_RETENTIONS && seconds[out->n] * SECOND < end - begin) {
        out->kept[out->n].us = seconds[out->n] * SECOND;
        out->n++;
    }
    out->kept[out->n++].us = INT64_MAX;
    for (size_t r = 0; r < refs->n_requests; r++) {
        const int64_t now = kvpi_requests_get(requests, r)->timestamp_us - begin;
        use(refs, &refs->requests[r], now, used, out, &found);
    }
    for (uint32_t i = 0; i < refs->n_contents; i++) {
        const int64_t rest = end - begin - used[i];
        count_gap(&found, class_of(out, rest), rest);
    }
    free(used);
    sum_up(refs, &found, end - begin, out);
    return TOOL_OK;
}
