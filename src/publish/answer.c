/* answer: readers that ask for batches. A request is [reader, empty, number]; the answer is the
 * batches from this number on, if all are kept; else AllBlocksCleared and the set, whose last batch
 * has the number of the newest one; then number -1 without a batch.
 *
 * The set may change while it is sent, and later batches tell how: units that came meanwhile are
 * left out. One reader is answered at a time, and what it does not take now is sent later.
 */
#include "publish/publisher_state.h"

#include <errno.h>
#include <string.h>
#include <zmq.h>

enum { BATCHES_OF_CALL = 64, NUMBER_BYTES = 8 };

static const uint64_t PATIENCE_NS = UINT64_C(5000000000);
static const uint64_t END_NUMBER = UINT64_MAX; /* -1 */

static void put_big_endian(uint8_t *at, uint64_t number)
{
    for (unsigned i = 0; i < NUMBER_BYTES; i++) {
        at[i] = (uint8_t)(number >> 8 * (NUMBER_BYTES - 1 - i));
    }
}

/* ------------------------------------------------------------------------------------- requests */

/* Read the frames of one message: how many; the first three as far as they fit. 0: no message. */
static uint32_t take_frames(void *socket, uint8_t frames[3][KVPI_PUBLISH_ID_BYTES], int sizes[3])
{
    uint32_t n = 0;
    int more = 1;
    while (more) {
        zmq_msg_t frame;
        (void)zmq_msg_init(&frame);
        const int size = zmq_msg_recv(&frame, socket, ZMQ_DONTWAIT);
        more = size >= 0 && zmq_msg_more(&frame);
        if (size >= 0 && n < 3) {
            sizes[n] = size;
            memcpy(frames[n], zmq_msg_data(&frame),
                   size < (int)KVPI_PUBLISH_ID_BYTES ? (size_t)size : KVPI_PUBLISH_ID_BYTES);
        }
        n += size >= 0;
        (void)zmq_msg_close(&frame);
    }
    return n;
}

/* The units that readers have, each behind the one before it. */
static void list_set(kvp_publisher *p)
{
    struct kvpi_answer *a = &p->answer;
    a->n_listed = 0;
    for (uint32_t slot = kvpi_units_next(&p->set, 0, 0, 0); slot != KVPI_NO_UNIT;
         slot = kvpi_units_next(&p->set, 0, slot, 0)) {
        if (kvpi_unit_at(&p->set, slot)->told != 0) {
            a->listed[a->n_listed++] = slot;
        }
    }
    a->stamp = p->set.stamp;
    a->last = p->kept.newest;
    a->tier = 0;
    a->at = 0;
    a->is_made = 0;
}

static void begin_set(kvp_publisher *p)
{
    p->answer.stage = KVPI_ANSWER_SET;
    p->stats.snapshots++;
    list_set(p);
    kvpi_out_begin(&p->answer.out);
    kvpi_out_cleared(&p->answer.out);
}

static void begin_answer(kvp_publisher *p, uint64_t start)
{
    struct kvpi_answer *a = &p->answer;
    a->next = start;
    a->moved_ns = p->now_ns;
    if (start > p->kept.newest) {
        a->stage = KVPI_ANSWER_END;
        p->stats.replays++;
    } else if (start >= kvpi_kept_oldest(&p->kept)) {
        a->stage = KVPI_ANSWER_KEPT;
        p->stats.replays++;
    } else {
        begin_set(p);
    }
}

/* Did this reader take nothing of an answer a moment ago? What it has asked since would keep the
 * others waiting as long again. */
static int was_left(const kvp_publisher *p, const uint8_t *id, size_t id_bytes)
{
    const struct kvpi_answer *a = &p->answer;
    return a->left_bytes == id_bytes && memcmp(a->left, id, id_bytes) == 0 &&
           p->now_ns - a->left_ns <= PATIENCE_NS;
}

/* Take the next request; 0: there is none. */
static int take_request(kvp_publisher *p)
{
    uint8_t frames[3][KVPI_PUBLISH_ID_BYTES];
    int sizes[3] = {0, 0, 0};
    const uint32_t n = take_frames(p->router, frames, sizes);
    if (n == 0) {
        return 0;
    }
    if (n != 3 || sizes[0] > (int)KVPI_PUBLISH_ID_BYTES - 1 || sizes[1] != 0 ||
        sizes[2] != NUMBER_BYTES || was_left(p, frames[0], (size_t)sizes[0])) {
        p->stats.bad_requests++;
        return 1;
    }
    p->answer.id_bytes = (size_t)sizes[0];
    memcpy(p->answer.id, frames[0], p->answer.id_bytes);
    begin_answer(p, kvpi_wire_number(frames[2], NUMBER_BYTES));
    return 1;
}

/* -------------------------------------------------------------------------------------- sending */

/* Send one message to the reader. 0: it went; else as errno says. */
static int send_frames(const kvp_publisher *p, const char *topic, uint64_t number,
                       const uint8_t *batch, size_t n_bytes)
{
    const struct kvpi_answer *a = &p->answer;
    uint8_t bytes[NUMBER_BYTES];
    put_big_endian(bytes, number);
    /* Only the first frame can fail: libzmq takes a message whole. */
    if (zmq_send(p->router, a->id, a->id_bytes, ZMQ_DONTWAIT | ZMQ_SNDMORE) < 0) {
        return errno;
    }
    (void)zmq_send(p->router, "", 0, ZMQ_DONTWAIT | ZMQ_SNDMORE);
    if (p->replay_form == KVP_PUBLISH_REPLAY_TOPIC) {
        (void)zmq_send(p->router, topic, strlen(topic), ZMQ_DONTWAIT | ZMQ_SNDMORE);
    }
    (void)zmq_send(p->router, bytes, sizeof(bytes), ZMQ_DONTWAIT | ZMQ_SNDMORE);
    (void)zmq_send(p->router, batch, n_bytes, ZMQ_DONTWAIT);
    return 0;
}

/* Fill the answer's batch with the set from where it is; is it the last one? */
static int pack_set(kvp_publisher *p)
{
    struct kvpi_answer *a = &p->answer;
    for (; a->tier < KVPI_PUBLISH_TIERS; a->tier++, a->at = 0) {
        for (; a->at < a->n_listed; a->at++) {
            const uint32_t slot = a->listed[a->at];
            const struct kvpi_unit *unit = kvpi_unit_at(&p->set, slot);
            if (unit->stamp == 0 || unit->stamp > a->stamp || !(unit->told >> a->tier & 1)) {
                continue;
            }
            if (kvpi_out_is_full(&a->out)) {
                return 0;
            }
            kvpi_out_stored(&a->out, &p->set, slot, a->tier, kvpi_tell_lora(p, unit));
        }
    }
    return 1;
}

static int send_of_set(kvp_publisher *p)
{
    struct kvpi_answer *a = &p->answer;
    if (!a->is_made) {
        a->is_last = pack_set(p);
        a->batch = kvpi_out_end(&a->out, p->now_ns, &a->batch_bytes);
        a->is_made = 1;
    }
    const uint64_t number = a->is_last || a->next > a->last ? a->last : a->next;
    const int error = send_frames(p, p->topic, number, a->batch, a->batch_bytes);
    if (error == 0) {
        a->next++;
        a->is_made = 0;
        kvpi_out_begin(&a->out);
        a->stage = a->is_last ? KVPI_ANSWER_END : KVPI_ANSWER_SET;
    }
    return error;
}

static int send_kept(kvp_publisher *p)
{
    struct kvpi_answer *a = &p->answer;
    if (a->next < kvpi_kept_oldest(&p->kept)) { /* the reader was too slow */
        begin_set(p);
        return send_of_set(p);
    }
    size_t n_bytes;
    const uint8_t *batch = kvpi_kept_at(&p->kept, a->next, &n_bytes);
    const int error = send_frames(p, p->topic, a->next, batch, n_bytes);
    if (error == 0 && a->next++ == p->kept.newest) {
        a->stage = KVPI_ANSWER_END;
    }
    return error;
}

static int send_next(kvp_publisher *p)
{
    if (p->answer.stage == KVPI_ANSWER_KEPT) {
        return send_kept(p);
    }
    if (p->answer.stage == KVPI_ANSWER_SET) {
        return send_of_set(p);
    }
    const int error = send_frames(p, "", END_NUMBER, (const uint8_t *)"", 0);
    if (error == 0) {
        p->answer.stage = KVPI_ANSWER_NONE;
    }
    return error;
}

/* The reader is gone, or takes nothing. */
static void leave_reader(kvp_publisher *p)
{
    struct kvpi_answer *a = &p->answer;
    a->stage = KVPI_ANSWER_NONE;
    a->left_ns = p->now_ns;
    a->left_bytes = a->id_bytes;
    memcpy(a->left, a->id, a->id_bytes);
    p->stats.bad_requests++;
}

int kvpi_answer_work(kvp_publisher *p)
{
    struct kvpi_answer *a = &p->answer;
    for (uint32_t i = 0; i < BATCHES_OF_CALL; i++) {
        if (a->stage == KVPI_ANSWER_NONE) {
            if (!take_request(p)) {
                return 0;
            }
            continue;
        }
        const int error = send_next(p);
        if (error == 0) {
            a->moved_ns = p->now_ns;
        } else if (error != EAGAIN || p->now_ns - a->moved_ns > PATIENCE_NS) {
            leave_reader(p);
        } else {
            return 0;
        }
    }
    return 1;
}
