/* text: the tokens of a sample. Position p is the prompt's p-th token, the caller's or in
 * pages, or the (p - prompt)-th that the sample generated. */
#include "sched/state.h"

#include <string.h>

void kvpi_text_read(const kvp_sched *sched, const struct kvpi_sample *sample,
                    struct kvpi_cursor *cursor, kvp_range range, int32_t *out_tokens)
{
    const struct kvpi_request *request = &sched->requests[sample->request];
    const uint32_t prompt = request->prompt.n_tokens;
    const uint32_t end = kvpi_sched_min(range.end, prompt);
    if (range.begin < end) {
        const uint32_t n = end - range.begin;
        if (request->prompt.tokens != NULL) {
            memcpy(out_tokens, request->prompt.tokens + range.begin, n * sizeof(*out_tokens));
        } else {
            kvpi_pages_read(&sched->pages, &request->pages, cursor, range.begin, n, out_tokens);
        }
        out_tokens += n;
    }
    const uint32_t begin = kvpi_sched_max(range.begin, prompt);
    if (begin < range.end) {
        struct kvpi_cursor start = kvpi_cursor_start();
        kvpi_pages_read(&sched->pages, &sample->generated, &start, begin - prompt,
                        range.end - begin, out_tokens);
    }
}
