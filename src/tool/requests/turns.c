/* turns: which request follows which in a session, and whether an answer is in the next prompt.
 *
 * It is when the later prompt begins with all whole blocks of the earlier one and is longer by at
 * least the answer: agents drop what a model thought, and then it is shorter. What the earlier
 * prompt's last, partly filled block holds is then the later prompt's, whatever its id.
 */
#include <stdlib.h>
#include <string.h>

#include "tool/requests/parse.h"

#define MIN_SLOTS 64u

static kvpi_turn *find_slot(const kvpi_requests_parser *parser, uint64_t name)
{
    size_t at = (size_t)name & (parser->n_slots - 1);
    while (parser->turns[at].number != KVPI_REQUESTS_NONE && parser->turns[at].name != name)
        at = (at + 1) & (parser->n_slots - 1);
    return &parser->turns[at];
}

static int grow(kvpi_requests_parser *parser)
{
    kvpi_turn *old = parser->turns;
    const size_t n_old = parser->n_slots, n = n_old == 0 ? MIN_SLOTS : n_old * 2;
    kvpi_turn *made = kvpi_budget_realloc(&parser->budget, NULL, 0, n * sizeof *made);
    if (made == NULL)
        return kvpi_requests_no_memory(parser);
    for (size_t i = 0; i < n; i++)
        made[i] = (kvpi_turn){.number = KVPI_REQUESTS_NONE};
    parser->turns = made;
    parser->n_slots = n;
    for (size_t i = 0; i < n_old; i++)
        if (old[i].number != KVPI_REQUESTS_NONE)
            *find_slot(parser, old[i].name) = old[i];
    free(old);
    kvpi_budget_give(&parser->budget, n_old * sizeof *old);
    return 0;
}

int kvpi_turns_find(kvpi_requests_parser *parser, uint64_t name, bool make, kvpi_turn **out)
{
    if (parser->n_turns * 2 >= parser->n_slots && grow(parser) != 0)
        return -1;
    *out = find_slot(parser, name);
    if ((*out)->number == KVPI_REQUESTS_NONE && make) {
        (*out)->name = name;
        parser->n_turns++;
    }
    return 0;
}

void kvpi_turns_follow(kvpi_requests_parser *parser, kvpi_request *request, const kvpi_turn *before)
{
    const kvpi_requests *set = parser->set;
    const kvpi_request *earlier = &set->requests[before->number];
    const int32_t block = set->about.trace_block;
    const uint32_t n_whole = (uint32_t)(earlier->input_length / block);
    const int64_t answered = (int64_t)earlier->input_length + earlier->output_length;
    request->after = before->number;
    bool begins = earlier->n_ids >= n_whole && request->n_ids >= n_whole && request->n_ids > 0;
    if (n_whole > 0 && earlier->n_ids > 0 && request->n_ids > 0) {
        const uint64_t *ids = &set->ids[earlier->first_id];
        const uint64_t *own = &set->ids[set->n_ids - request->n_ids];
        parser->followed++;
        parser->continuing += ids[0] == own[0];
        begins = begins && memcmp(ids, own, n_whole * sizeof *ids) == 0;
    }
    if (begins && request->input_length >= answered && answered <= KVPI_REQUESTS_MAX_TOKENS) {
        request->shared = (int32_t)answered;
        parser->set->about.joined++;
    } else {
        parser->set->about.not_joined++;
    }
}
