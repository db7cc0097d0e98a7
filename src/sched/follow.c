/* follow: waiting requests that are kept back while another request computes their prefix
 * (kvp_sched_config.wait_for_prefix).
 *
 *     F waits, its match ends at h           L runs, and has chunks to compute
 *     |---- hit ----h-------- common -------E....      E: where F and L part, in whole units
 *                   c: L has computed so far, h + unit > c
 *
 * F follows L from then on, and is kept back while L runs and c < E. That costs O(1) a step: no
 * text is compared again, and no prompt is matched. When L is preempted, left out, paused or over,
 * F looks for another one, or comes in.
 *
 * With recurrent state a hit ends where L leaves a checkpoint: E is the last such place in what the
 * two have in common, and F follows L if its match ends before that place.
 *
 * No request waits in a circle: L holds blocks and is scheduled. As long as it is, its chunks go
 * on; when it is not, no request follows it.
 */
#include "sched/sched_state.h"

#include <string.h>

/* Tokens of a leader that are compared at once. */
enum { PIECE = 64 };

/* A sample is in PREFILL only while its request runs. It has another sequence once it was
 * preempted by recompute, and its place may be another one's. */
static int is_led(const kvp_sched *sched, const struct kvpi_request *request)
{
    const struct kvpi_sample *sample = &sched->samples[request->leader_sample];
    return sample->seq.bits == request->leader.bits && sample->stage == KVPI_STAGE_PREFILL &&
           sample->computed < request->follow_end;
}

static int keys_are_equal(const kvp_key *a, const kvp_key *b)
{
    return a->type == b->type && a->begin == b->begin && a->end == b->end &&
           a->n_bytes == b->n_bytes && memcmp(a->bytes, b->bytes, a->n_bytes) == 0;
}

/* Where the keys of two prompts part, at most `end`. */
static uint32_t common_keys(const kvp_prompt *a, const kvp_prompt *b, uint32_t end)
{
    const uint32_t n = kvpi_sched_min(a->n_keys, b->n_keys);
    uint32_t i = 0;
    while (i < n && keys_are_equal(&a->keys[i], &b->keys[i])) {
        i++;
    }
    end = i < a->n_keys ? kvpi_sched_min(end, a->keys[i].begin) : end;
    return i < b->n_keys ? kvpi_sched_min(end, b->keys[i].begin) : end;
}

/* Where the tokens of a prompt and of a sample part, at most `end`. */
static uint32_t common_tokens(const kvp_sched *sched, const int32_t *tokens,
                              const struct kvpi_sample *sample, uint32_t end)
{
    struct kvpi_cursor cursor = kvpi_cursor_start();
    int32_t piece[PIECE];
    for (uint32_t at = 0; at < end; at += PIECE) {
        const kvp_range range = {at, kvpi_sched_min(at + PIECE, end)};
        kvpi_read_text(sched, sample, &cursor, range, piece);
        for (uint32_t i = range.begin; i < range.end; i++) {
            if (piece[i - at] != tokens[i]) {
                return i;
            }
        }
    }
    return end;
}

/* How much of the prompt others can hit when the sample has computed its chunks: 0 when it has
 * computed all of that. What the cache shares of a sequence ends where its units are private. */
static uint32_t common_end(const kvp_sched *sched, const kvp_prompt *prompt,
                           const struct kvpi_sample *sample)
{
    const struct kvpi_request *leader = &sched->requests[sample->request];
    kvp_seq_info info;
    uint32_t end = kvpi_sched_min(prompt->n_tokens, kvpi_sample_goal(sched, leader, sample));
    if (end <= sample->computed || kvp_seq_info_get(sched->cache, sample->seq, &info) != KVP_OK) {
        return 0;
    }
    end = kvpi_sched_min(end, info.public_tokens);
    end = prompt->n_uncached > 0 ? kvpi_sched_min(end, prompt->uncached[0].begin) : end;
    end = common_keys(prompt, &leader->prompt, end);
    end = end <= sample->computed ? 0 : common_tokens(sched, prompt->tokens, sample, end);
    end -= end % sched->unit_tokens;
    end = sched->usable_slots > 0 ? kvpi_slots_last_kept(sched, sample, end) : end;
    return end > sample->computed ? end : 0;
}

/* Does a match of the prompt end at a unit that the sample computes next, or later? */
static int ends_in_chunks(kvp_sched *sched, const struct kvpi_request *request,
                          const kvp_prompt *prompt, const struct kvpi_sample *sample, uint32_t end)
{
    kvp_open_info info;
    return kvp_cache_match(sched->cache, request->ns, prompt, &info) == KVP_OK &&
           info.stop == KVP_STOP_NO_KV && info.hit_tokens < end &&
           (sched->usable_slots > 0 || info.hit_tokens + sched->unit_tokens > sample->computed);
}

/* Whether a waiting request is kept back. Those whose chunks come first are asked first. */
int kvpi_follow_keeps_back(kvp_sched *sched, struct kvpi_request *request)
{
    if (request->leader.bits != 0 && is_led(sched, request)) {
        return 1;
    }
    request->leader.bits = 0;
    if (sched->prefill_first == KVPI_NONE) {
        return 0;
    }
    const kvp_prompt prompt =
        kvpi_open_prompt_of(sched, request, kvpi_open_trunk_of(sched, request));
    for (uint32_t place = sched->prefill_first; place != KVPI_NONE;) {
        const struct kvpi_sample *sample = &sched->samples[place];
        const struct kvpi_request *leader = &sched->requests[sample->request];
        const uint32_t end =
            leader->ns.bits == request->ns.bits ? common_end(sched, &prompt, sample) : 0;
        if (end > 0 && ends_in_chunks(sched, request, &prompt, sample, end)) {
            request->leader = sample->seq;
            request->leader_sample = place;
            request->follow_end = end;
            sched->stats.followed++;
            return 1;
        }
        place = sample->list_after;
    }
    return 0;
}
