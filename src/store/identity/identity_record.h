/* identity_record: the bytes of a record, a header and a payload, in every store alike.
 *
 *   header   256 bytes, then tokens, then extra keys, then zeros up to a multiple of 4096
 *   payload  the blocks, one after the other, in the order of the fingerprint; or one state
 *
 * Where the fields of a header are, little-endian:
 *
 *     0  magic "kvpagerS"         96  digest of the last block, or the engine's key [32]
 *     8  version u32             128  key of the record before, or zero [32]
 *    12  kind u32                160  space u64
 *    16  header bytes u32        168  written u64: seconds since 1970, by the store's clock
 *    20  flags u32               176  slot u64
 *    24  payload bytes u64       184  generation u64
 *    32  group u32               192  n_keys u32
 *    36  slice 4 x u32           196  body bytes u32: tokens and keys
 *    52  block_tokens u32        200  XXH3-128 of the payload, canonical [16]
 *    56  n_blocks u32            216  HMAC-SHA-256, or zero [32]
 *    60  position u32            248  XXH3-64 of bytes 0..247 and the body
 *    64  fingerprint [32]        256  body: n_blocks x block_tokens x i32; n_keys x (type u32,
 *                                     offset i32, n_bytes u32, bytes)
 *
 * A header is bound to its place by slot and generation: a right record in a wrong slot is bad. The
 * HMAC is over bytes 0..215, the body and the payload. Nothing of a header is believed before its
 * checksum, and then only if it is what the reader expects. */
#ifndef KVPI_STORE_RECORD_H
#define KVPI_STORE_RECORD_H

#include "store/identity/crypto.h"

enum {
    KVPI_RECORD_VERSION = 1,
    KVPI_RECORD_PAGE = 4096,
    KVPI_RECORD_FIXED = 256,
    KVPI_RECORD_KEYS_MAX = 4096
};

enum { KVPI_RECORD_MAC = 1, KVPI_RECORD_BIG_ENDIAN = 2 }; /* flags */

/* Why a record is not served. */
enum kvpi_record_fault {
    KVPI_RECORD_GOOD = 0,
    KVPI_RECORD_DAMAGED,  /* no header, or its checksum is wrong */
    KVPI_RECORD_VERSION_, /* another version or byte order */
    KVPI_RECORD_PLACE,    /* of another slot, or of an earlier use of it */
    KVPI_RECORD_LENGTH,   /* of another size */
    KVPI_RECORD_IDENTITY, /* of other tokens, keys, prefix, model, group, slice or kind */
    KVPI_RECORD_PAYLOAD,  /* the payload's checksum is wrong */
    KVPI_RECORD_CODE,     /* the MAC is missing or wrong */
    KVPI_RECORD_FAULTS
};

/* A piece of a payload in memory. */
struct kvpi_span {
    void *bytes;
    size_t n_bytes;
};

/* Where and when a record is written; zeros in stores without slots. */
struct kvpi_place {
    uint64_t slot;
    uint64_t generation;
    uint64_t written;
};

/* A header without an identity to compare it with: for lists and recovery. */
struct kvpi_record_head {
    uint32_t kind;
    uint32_t group;
    kvp_slice slice;
    uint32_t block_tokens;
    uint32_t n_blocks;
    uint32_t position;
    uint32_t header_bytes;
    uint64_t payload_bytes;
    kvp_digest fingerprint;
    kvp_digest digest;
    kvp_digest parent;
    uint64_t space;
    struct kvpi_place place;
};

/* Bytes of a header for so many tokens and key bytes: a multiple of KVPI_RECORD_PAGE. */
uint32_t kvpi_record_header_bytes(uint64_t n_tokens, uint64_t key_bytes);

/* Tell whether records of this kind have tokens and extra keys in their header. */
int kvpi_identity_has_tokens(uint32_t kind);

/* Tell whether an identity is one: kind, counts, pointers, keys in the record's range. */
int kvpi_identity_valid(const kvp_identity *identity);

/* Bytes of its keys in a header. */
uint64_t kvpi_identity_key_bytes(const kvp_identity *identity);

/* Write a header for a payload.
 *
 * Takes:   header_bytes multiple of KVPI_RECORD_PAGE
 *          mac          NULL: none
 * Gives:   out_header   [header_bytes], all of it
 * Returns: KVP_OK; KVP_E_TOO_SMALL: header_bytes is too small for the tokens and keys; KVP_E_IO:
 *          libcrypto failed
 */
kvp_status kvpi_record_write(const kvp_identity *identity, const struct kvpi_place *place,
                             const struct kvpi_span *spans, uint32_t n_spans, struct kvpi_mac *mac,
                             uint32_t header_bytes, uint8_t *out_header);

/* Read a header that may be anything. DAMAGED, VERSION_ or GOOD. */
enum kvpi_record_fault kvpi_record_read_head(const uint8_t *header, uint32_t header_bytes,
                                             struct kvpi_record_head *out_head);

/* Decide whether a header that was read says something that kvpi_record_write could have written:
 * kind, counts, and a body that ends where it should. */
int kvpi_record_well_formed(const uint8_t *header);

/* Decide whether a header is that of this identity, in this place (NULL: any). */
enum kvpi_record_fault kvpi_record_check_header(const kvp_identity *identity,
                                                const struct kvpi_place *place,
                                                uint64_t payload_bytes, const uint8_t *header,
                                                uint32_t header_bytes);

/* Decide whether the payload is what a checked header says, and both what the secret's owner wrote.
 * With a mac, a record without code is bad; without, a code is not looked at. */
enum kvpi_record_fault kvpi_record_check_payload(const uint8_t *header,
                                                 const struct kvpi_span *spans, uint32_t n_spans,
                                                 struct kvpi_mac *mac);

/* Name a fault, as statistics and operators see it: "damaged", "version", "place", ... */
const char *kvpi_record_fault_name(enum kvpi_record_fault fault);

#endif
