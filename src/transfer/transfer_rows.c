/* transfer_rows: gathers what a message carries, and scatters what came.
 *
 *   message   K [n_tokens, heads, D]  V [n_tokens, heads, Dv]  scales of K [heads]  of V [heads]
 *
 * Elements go as they lie, so that they come out bit for bit; where they lie in each memory is that
 * memory's business. What lies side by side is moved in one piece: the tokens of a block, where
 * heads and tokens follow each other (NHD), or a token's heads, or a head's elements.
 *
 * What comes is written past the caches, as the copy engine writes: the message is in them, and its
 * place is not. A message that another processor reads is written past them, too: where the two
 * share no cache, each of its lines would be fetched from the one to be read, and back again to be
 * written. Each piece has its checksum taken while it is in the nearest cache, so that the message
 * is not read again. Small runs are put together first. */
#include "transfer/transfer_rows.h"

#include <string.h>

#include "memory/copy/stream.h"

enum { PIECE = 4096 };

/* One direction of a move; to the memory if `in` is set. */
struct way {
    const uint8_t *in;
    struct kvpi_rows_out *out;
    kvpi_stream_fn stream; /* NULL: memcpy */
    uint8_t *piece;        /* [PIECE] of a message; without a stream, where it goes */
    size_t n_piece;
};

static void end_piece(struct way *way)
{
    struct kvpi_rows_out *out = way->out;
    kvpi_checksum_add(&out->sum, way->piece, way->n_piece);
    if (way->stream)
        way->stream(out->at, way->piece, way->n_piece, way->piece);
    else
        way->piece += way->n_piece;
    out->at += way->n_piece;
    way->n_piece = 0;
}

/* Stream what lies side by side, while it is in the nearest cache for its checksum. */
static size_t stream_pieces(struct way *way, const unsigned char *memory, size_t n_bytes)
{
    size_t at = 0;
    for (; n_bytes - at >= PIECE; at += PIECE, way->out->at += PIECE) {
        way->stream(way->out->at, memory + at, PIECE, memory + at + PIECE);
        kvpi_checksum_add(&way->out->sum, memory + at, PIECE);
    }
    return at;
}

static void row_gather(struct way *way, const unsigned char *memory, size_t n_bytes)
{
    for (size_t at = 0, n; at < n_bytes; at += n) {
        if (way->stream && way->n_piece == 0)
            at += stream_pieces(way, memory + at, n_bytes - at);
        n = n_bytes - at < PIECE - way->n_piece ? n_bytes - at : PIECE - way->n_piece;
        memcpy(way->piece + way->n_piece, memory + at, n);
        way->n_piece += n;
        if (way->n_piece == PIECE)
            end_piece(way);
    }
}

static void row_move(struct way *way, unsigned char *memory, size_t n_bytes)
{
    if (!way->in) {
        row_gather(way, memory, n_bytes);
        return;
    }
    if (way->stream)
        way->stream(memory, way->in, n_bytes, way->in);
    else
        memcpy(memory, way->in, n_bytes);
    way->in += n_bytes;
}

size_t kvpi_rows_token_bytes(const kvp_layer *layer, uint32_t n_heads)
{
    const size_t v_size = layer->v.base ? layer->v.size : 0;
    return (layer->k.size + v_size) * kvp_type_bytes(layer->type) * n_heads;
}

size_t kvpi_rows_scale_bytes(const kvp_layer *layer, uint32_t n_heads)
{
    return ((layer->k.scales != NULL) + (size_t)(layer->v.scales != NULL)) * sizeof(float) *
           n_heads;
}

static void move_token(const struct kvpi_rows *rows, const kvp_layer_part *part,
                       unsigned char *token, struct way *way)
{
    const size_t element = kvp_type_bytes(rows->layer->type);
    for (uint32_t h = 0; h < rows->n_heads; h++) {
        unsigned char *at = token + (rows->first_head + h) * part->head_stride;
        for (uint32_t e = 0; e < part->size; e += part->run, at += part->run_stride)
            row_move(way, at, part->run * element);
    }
}

static void move_part(const struct kvpi_rows *rows, const kvp_layer_part *part, struct way *way)
{
    const uint32_t S = rows->layer->block_tokens;
    const size_t head_bytes = part->size * kvp_type_bytes(rows->layer->type);
    const size_t token_bytes = head_bytes * rows->n_heads;
    const int heads_touch =
        part->run == part->size && (rows->n_heads == 1 || part->head_stride == head_bytes);
    const int tokens_touch = heads_touch && part->token_stride == token_bytes;
    const uint32_t end = rows->position + rows->n_tokens;
    for (uint32_t at = rows->position, n; part->base && at < end; at += n) {
        unsigned char *block = part->base + (size_t)rows->row[at / S] * part->block_stride;
        n = S - at % S < end - at ? S - at % S : end - at;
        for (uint32_t i = 0; i < n; i++) {
            unsigned char *token = block + (at % S + i) * part->token_stride;
            if (!heads_touch) {
                move_token(rows, part, token, way);
                continue;
            }
            token += rows->first_head * part->head_stride;
            row_move(way, token, tokens_touch ? n * token_bytes : token_bytes);
            if (tokens_touch)
                break;
        }
    }
}

static void move_scales(const struct kvpi_rows *rows, const kvp_layer_part *part, struct way *way)
{
    if (!part->scales)
        return;
    unsigned char *scales =
        (unsigned char *)part->scales +
        (size_t)rows->row[rows->position / rows->layer->block_tokens] * part->scale_block_stride;
    for (uint32_t h = 0; h < rows->n_heads; h++)
        row_move(way, scales + (rows->first_head + h) * part->scale_head_stride, sizeof(float));
}

static void move_all(const struct kvpi_rows *rows, struct way *way)
{
    move_part(rows, &rows->layer->k, way);
    move_part(rows, &rows->layer->v, way);
    move_scales(rows, &rows->layer->k, way);
    move_scales(rows, &rows->layer->v, way);
}

typedef void (*move_fn)(const struct kvpi_rows *rows, struct way *way);

static void gather(const struct kvpi_rows *rows, struct kvpi_rows_out *out, move_fn move)
{
    _Alignas(64) uint8_t piece[PIECE];
    const kvpi_stream_fn stream = out->is_shared ? kvpi_stream_best() : NULL;
    struct way way = {.out = out, .stream = stream, .piece = stream ? piece : out->at};
    move(rows, &way);
    end_piece(&way);
    if (stream)
        kvpi_stream_end();
}

static void scatter(const struct kvpi_rows *rows, const uint8_t *in, move_fn move)
{
    struct way way = {.in = in, .stream = kvpi_stream_best()};
    move(rows, &way);
    kvpi_stream_end();
}

void kvpi_rows_gather(const struct kvpi_rows *rows, struct kvpi_rows_out *out)
{
    gather(rows, out, move_all);
}

void kvpi_rows_scatter(const struct kvpi_rows *rows, const uint8_t *in)
{
    scatter(rows, in, move_all);
}

/* Of bytes [begin, end) of a head's state, those that lie in a part, whose first is number `at`. */
static void move_bytes(const struct kvpi_rows *rows, const kvp_layer_part *part, uint32_t head,
                       uint32_t at, struct way *way)
{
    const uint32_t end = rows->position + rows->n_tokens;
    const uint32_t from = rows->position > at ? rows->position - at : 0;
    const uint32_t to =
        part->base && end > at ? (end - at < part->size ? end - at : part->size) : 0;
    unsigned char *state = part->base;
    for (uint32_t e = from, n; e < to; e += n) { /* bytes of a run lie side by side */
        n = part->run - e % part->run < to - e ? part->run - e % part->run : to - e;
        row_move(way,
                 state + (size_t)rows->row[0] * part->block_stride + head * part->head_stride +
                     e / part->run * part->run_stride + e % part->run,
                 n);
    }
}

static void move_state(const struct kvpi_rows *rows, struct way *way)
{
    for (uint32_t h = rows->first_head; h < rows->first_head + rows->n_heads; h++) {
        move_bytes(rows, &rows->layer->k, h, 0, way);
        move_bytes(rows, &rows->layer->v, h, rows->layer->k.size, way);
    }
}

void kvpi_rows_gather_state(const struct kvpi_rows *rows, struct kvpi_rows_out *out)
{
    gather(rows, out, move_state);
}

void kvpi_rows_scatter_state(const struct kvpi_rows *rows, const uint8_t *in)
{
    scatter(rows, in, move_state);
}
