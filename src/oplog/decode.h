/* decode: bytes -> configuration, calls, results. Survives any bytes. */
#ifndef KVPI_OPLOG_DECODE_H
#define KVPI_OPLOG_DECODE_H

#include <kvpager/oplog.h>

struct kvpi_oplog_buffer {
    void *data;
    size_t n_bytes;
};

/* Reads from `at`; stops at the first thing that is wrong, with the reason in `status` and `at` on
 * the first byte of it. Arrays lie in the buffers, until the next record is decoded. */
struct kvpi_oplog_decoder {
    const uint8_t *at;
    const uint8_t *end;
    kvp_status status;    /* KVP_OK, KVP_E_FORMAT, KVP_E_VERSION, KVP_E_NO_MEMORY */
    uint32_t unit_tokens; /* U of the configuration */
    struct kvpi_oplog_buffer tokens, parents, keys, ranges, handles, counts, shared;
};

/* What a record says about the results. Long arrays are known by number and digest only. */
struct kvpi_oplog_results {
    kvp_outcome outcome; /* status, handle, number, u, n; u64 of reports; no other array */
    int has_array;       /* the call gave an array of n entries; tree: one or two, or none */
    int has_digest;      /* and n is not 0 */
    uint64_t digest;
    int has_tokens; /* events with tokens, n_tokens in all; a digest when that is not 0 */
    uint64_t n_tokens;
    uint64_t token_digest;
    const uint8_t *statuses; /* [n] batch with KVP_BATCH_EACH: -status of each; else NULL */
    int has_decisions;
    uint32_t decisions;
    const uint8_t *bytes; /* where they begin: the status */
};

void kvpi_oplog_decoder_free(struct kvpi_oplog_decoder *decoder);

/* Decode the magic and the configuration; sets decoder->unit_tokens.
 * Gives: out_config; uncached_tokens is in decoder->tokens. Returns: decoder->status. */
kvp_status kvpi_oplog_decode_header(struct kvpi_oplog_decoder *decoder, kvp_config *out_config);

/* Decode one record. Gives: the call and the results. Returns: decoder->status. */
kvp_status kvpi_oplog_decode_record(struct kvpi_oplog_decoder *decoder, kvp_call *out_call,
                                    struct kvpi_oplog_results *out_results);

#endif
