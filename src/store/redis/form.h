/* form: how a record lies on a server, which depends on the size of a store's records alone.
 *
 *   small   a string: header and payload. SET NX sends it at once
 *   large   a hash of three fields: "0" the header, "1" the rest, "2" the piece. Whether the server
 *           has it is asked first: what a server is sent counts for its memory, and other keys are
 *           evicted for a record that is then refused
 *
 * The allocator of a server (jemalloc) has four sizes of blocks between two powers of two, and a
 * record of 2 MiB with its header would take one of 2.5 MiB. The piece fills a block. The rest is
 * what is left of the payload: less than a quarter of it, and of a power of two 32 bytes. */
#ifndef KVPI_STORE_REDIS_FORM_H
#define KVPI_STORE_REDIS_FORM_H

#include "store/backend.h"

/* A large record is written by MULTI, HSET, PEXPIRE and EXEC, which tells of two of them. */
enum { KVPI_FORM_LARGE = 65536, KVPI_FORM_FIELDS = 3, KVPI_FORM_COMMANDS = 4, KVPI_FORM_TOLD = 2 };

static inline int kvpi_form_is_large(uint64_t payload_bytes)
{
    return payload_bytes >= KVPI_FORM_LARGE;
}

/* Bytes of a payload in field "1"; field "2" has what follows them. */
size_t kvpi_form_rest(size_t payload_bytes);

/* Bytes of an operation's payload. */
size_t kvpi_form_payload(const struct kvpi_store_op *op);

/* Put a small record where its operation wants it, or a field of a large one: the header comes
 * first. Of what has another length, only the beginning of the header is kept. */
void kvpi_form_take(struct kvpi_store_op *op, const char *bytes, size_t n_bytes);
void kvpi_form_take_field(struct kvpi_store_op *op, int field, const char *bytes, size_t n_bytes);

#endif
