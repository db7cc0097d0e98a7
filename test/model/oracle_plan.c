/* Copies: those that wait in the plan, and those out in steps. */
#include "oracle_parts.h"

#include <stdlib.h>
#include <string.h>

/* How many more copies there may be. */
uint32_t oracle_plan_room(const oracle *o)
{
    return o->config.max_copies - o->n_copies;
}

static oracle_copy *add(oracle *o, int32_t source, int32_t destination, uint32_t n_tokens)
{
    oracle_copy *copy = &o->copies[o->n_copies++];

    memset(copy, 0, sizeof *copy);
    copy->id = ++o->copy_id;
    copy->read_of = o->blocks[source].filled_by;
    copy->from = source;
    copy->to = destination;
    copy->group = o->blocks[destination].group;
    copy->n_tokens = n_tokens;
    o->marks.flight_read += copy->read_of > 0;
    if (oracle_overlapped(o))
        o->blocks[destination].filled_by = copy->id;
    for (uint32_t i = 0; i < 2; i++) {
        oracle_block *b = &o->blocks[i ? destination : source];
        uint64_t next = 1 + (oracle_overlapped(o) ? o->step_number : o->plans);

        b->used_by = next;
        b->written_by = i ? next : b->written_by;
    }
    o->n_plan++;
    o->stats.copies++;
    return copy;
}

/* A slot's number among all that copies go between: behind the blocks. */
int32_t oracle_slot_number(const oracle *o, uint32_t tier, uint32_t slot)
{
    return (int32_t)(o->n_all_blocks + (tier == KVP_HOST ? o->config.state_slots : 0) + slot);
}

oracle_slot *oracle_slot_at(const oracle *o, int32_t number)
{
    uint32_t slot = (uint32_t)number - o->n_all_blocks;

    return slot < o->config.state_slots ? &o->slots[slot]
                                        : &o->host_slots[slot - o->config.state_slots];
}

bool oracle_copies_state(const oracle_copy *copy)
{
    return copy->wire.n_tokens > 0;
}

/* A copy of a state, to the other tier. */
void oracle_plan_state(oracle *o, uint32_t to_tier, uint32_t source, uint32_t destination)
{
    oracle_copy *copy = &o->copies[o->n_copies++];

    memset(copy, 0, sizeof *copy);
    copy->id = ++o->copy_id;
    copy->from = oracle_slot_number(o, !to_tier, source);
    copy->to = oracle_slot_number(o, to_tier, destination);
    copy->group = o->config.n_groups;
    copy->n_tokens = 1;
    copy->wire = (kvp_copy){.group = (uint16_t)o->config.n_groups,
                            .src_tier = (uint8_t)!to_tier,
                            .dst_tier = (uint8_t)to_tier,
                            .src_block = (int32_t)source,
                            .dst_block = (int32_t)destination,
                            .n_tokens = 1};
    o->host_slots[to_tier == KVP_HOST ? destination : source].used_by =
        1 + (oracle_overlapped(o) ? o->step_number : o->plans);
    copy->read_of = oracle_slot_at(o, copy->from)->filled_by;
    if (oracle_overlapped(o))
        oracle_slot_at(o, copy->to)->filled_by = copy->id;
    o->n_plan++;
    o->stats.copies++;
    o->to_come--;
}

/* A copy that the call announced in to_come. */
void oracle_plan_add(oracle *o, int32_t source, int32_t destination, uint32_t n_tokens)
{
    add(o, source, destination, n_tokens);
    o->to_come--;
}

/* A copy that keeps an evicted block. */
void oracle_plan_keep(oracle *o, int32_t source, int32_t destination, uint32_t n_tokens)
{
    add(o, source, destination, n_tokens)->keeps = oracle_overlapped(o);
}

/* The plan's copies into a block that lost its content are of no use, but for what reads it later.
 * Those that go are counted in *mark. */
void oracle_plan_forget(oracle *o, int32_t block, uint64_t *mark)
{
    uint32_t first = o->n_copies - o->n_plan;
    bool read_later = false;

    for (uint32_t i = o->n_copies; i-- > first;) {
        if (o->copies[i].to == block && !read_later) {
            o->n_copies--;
            o->n_plan--;
            ++*mark;
            memmove(&o->copies[i], &o->copies[i + 1], (o->n_copies - i) * sizeof *o->copies);
        } else if (o->copies[i].to == block) {
            o->marks.needed_copies++;
        } else if (o->copies[i].from == block) {
            read_later = true;
        }
    }
}

static bool same_phase(const oracle_copy *a, const oracle_copy *b)
{
    return a->to != b->to && a->from != b->to && a->to != b->from;
}

/* The plan, with phases, in o->wire. */
static void put_wire(oracle *o)
{
    const oracle_copy *plan = o->copies + o->n_copies - o->n_plan;
    uint32_t phase = 0, begin = 0;

    o->wire = oracle_grow(o->wire, &o->wire_capacity, o->n_plan, sizeof *o->wire);
    for (uint32_t i = 0; i < o->n_plan; i++) {
        for (uint32_t j = begin; j < i; j++) {
            if (!same_phase(&plan[j], &plan[i])) {
                phase++;
                begin = i;
                break;
            }
        }
        o->wire[i] = plan[i].wire;
        o->wire[i].phase = phase;
        if (oracle_copies_state(&plan[i]))
            continue;
        o->wire[i].group = (uint16_t)plan[i].group;
        o->wire[i].src_tier = (uint8_t)oracle_tier(o, plan[i].from);
        o->wire[i].dst_tier = (uint8_t)oracle_tier(o, plan[i].to);
        o->wire[i].src_block = oracle_id(o, plan[i].from);
        o->wire[i].dst_block = oracle_id(o, plan[i].to);
        o->wire[i].n_tokens = plan[i].n_tokens;
    }
}

/* What kvp_plan_take and kvp_step_begin have in common, unless the number is all that is asked. */
static kvp_status give(oracle *o, const kvp_call *call, kvp_outcome *out)
{
    out->n = o->n_plan;
    if (call->count == 0)
        return KVP_OK;
    if (o->n_plan > call->count)
        return oracle_fail(o, KVP_E_TOO_SMALL, 0, 0);
    oracle_begin_change(o);
    put_wire(o);
    out->copies = o->wire;
    return KVP_OK;
}

kvp_status oracle_plan_take(oracle *o, const kvp_call *call, kvp_outcome *out)
{
    kvp_status status;

    if (oracle_overlapped(o))
        return oracle_fail(o, KVP_E_STATE, 0, 0);
    status = give(o, call, out);
    if (status == KVP_OK && call->count) {
        o->n_plan = o->n_copies = 0;
        o->plans++;
    }
    return status;
}

kvp_status oracle_step_begin(oracle *o, const kvp_call *call, kvp_outcome *out)
{
    oracle_step *step = &o->steps[o->n_steps];
    kvp_status status;

    if (!oracle_overlapped(o))
        return oracle_fail(o, KVP_E_STATE, 0, 0);
    if (o->n_steps == o->config.max_steps_out)
        return oracle_fail(o, KVP_E_NO_STEPS, 0, 0);
    status = give(o, call, out);
    if (status != KVP_OK || !call->count)
        return status;
    memset(step, 0, sizeof *step);
    step->number = out->number = ++o->step_number;
    for (uint32_t i = o->n_copies - o->n_plan; i < o->n_copies; i++)
        o->copies[i].step = step->number;
    o->n_plan = 0;
    o->n_steps++;
    o->stats.steps++;
    return KVP_OK;
}
