/* kvpager/identity.h: the identity of stored KV, so that it is never mistaken for other KV.
 *
 * KV in a store outlives the process that computed it. A reader must know that the same model
 * computed it, in the same format, for the same tokens after the same prefix:
 *
 *   fingerprint = SHA-256 of everything that KV depends on besides tokens: weights, types, rope,
 *                 layers and heads, block sizes, windows. One field changed: no hit
 *   root        = SHA-256( "kvpagerR", fingerprint[32], epoch u64, name_bytes u32, name )
 *   digest      = SHA-256( parent digest[32], tokens [S] i32, n_keys u32,
 *                          n_keys x ( type u32, offset i32, n_bytes u32, bytes[n_bytes] ) )
 *   key         = SHA-256( "kvpagerK", digest[32], group u32, first_layer u32, n_layers u32,
 *                          first_head u32, n_heads u32 )
 *
 * All numbers are little-endian. A digest stands for one block and all before it. The key of a
 * record is made of the digest of its last block: it finds a candidate, and the record's header
 * proves what it is. `offset` is key.begin minus the block's first position, as in hash.h.
 *
 * Inside a process, XXH3 (hash.h) finds candidates, and tokens decide. A store cannot hold the
 * tokens of a whole prefix with each record, so a collision-resistant hash stands for them. Vectors
 * made by an independent program are in test/golden/store_vectors.json; docs/STORES.md has the
 * bytes of a fingerprint.
 */
#ifndef KVPAGER_IDENTITY_H
#define KVPAGER_IDENTITY_H

#include "hash.h"
#include "memory.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A SHA-256. All zero stands for "not given" where a call says so. */
typedef struct kvp_digest {
    uint8_t bytes[32];
} kvp_digest;

/* ---------------------------------------------------------------------------------- fingerprint */

/* Bytes of kvp_fingerprint_input.rope and .draft, at most. */
#define KVP_FINGERPRINT_BYTES_MAX 65536u

/* What KV depends on besides its tokens, its extra keys and its namespace. */
typedef struct kvp_fingerprint_input {
    size_t struct_size;       /* set by kvp_fingerprint_input_init */
    kvp_digest weights;       /* of the model's weights, adapters excluded; all zero is refused: a
                               model's name does not say what its weights are */
    const char *quantisation; /* of the weights, "gptq-int4-g128"; "": none (default) */
    const char *compute_type; /* that K and V are computed in, "bf16"; must not be "" */
    const void *rope;         /* [rope_bytes] rotary embedding with every override, in one fixed
                               form; NULL when rope_bytes is 0 (default): no rotary embedding */
    const void *draft;        /* [draft_bytes] the draft model whose KV lies in the same blocks;
                               NULL when draft_bytes is 0 (default): none */
    uint32_t rope_bytes;      /* 0..KVP_FINGERPRINT_BYTES_MAX */
    uint32_t draft_bytes;     /* 0..KVP_FINGERPRINT_BYTES_MAX */
    uint32_t type;            /* of K and V in memory: KVP_F32 ... KVP_E4M3 */
    uint32_t scales;          /* 0: none (default); 1: one for each block and head; other numbers:
                                 the engine's own kinds */
    uint32_t k_size;          /* elements of a token and head, 1..KVP_HEAD_SIZE_MAX */
    uint32_t v_size;          /* 0..KVP_HEAD_SIZE_MAX; 0: latent */
    uint32_t model_layers;    /* of the whole model, 1..KVP_LAYERS_MAX */
    uint32_t model_heads;     /* KV heads of the whole model, 1..KVP_HEADS_MAX */
    kvp_slice slice;          /* what this rank has of them */
    uint32_t block_tokens;    /* S, 1..KVP_BLOCK_TOKENS_MAX */
    uint32_t unit_tokens;     /* U, divides S */
    uint32_t n_groups;        /* layer groups, 1..KVP_GROUPS_MAX; default 1 */
    const char *order;        /* of a block's bytes in a record, as for kvp_layout_arrange; default
                                 KVP_ORDER_CPU */
    kvp_group groups[KVP_GROUPS_MAX]; /* [n_groups] as in kvp_config: the window and S of each */
} kvp_fingerprint_input;

/* Fill `input` with the defaults. A NULL input is ignored. Thread: pure. */
KVP_API void kvp_fingerprint_input_init(kvp_fingerprint_input *input);

/* -------------------------------------------------------------------------------------- digests */

/* Makes digests. Holds the state of SHA-256 in libcrypto, so that no call allocates. */
typedef struct kvp_digester kvp_digester;

/* Make a digester.
 *
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_NO_MEMORY; KVP_E_IO: libcrypto does not offer SHA-256
 * Thread:  any; a digester is used by one thread at a time
 */
KVP_API kvp_status kvp_digester_create(kvp_digester **out_digester);

/* Free a digester. NULL is ignored. */
KVP_API void kvp_digester_destroy(kvp_digester *digester);

/* Make the fingerprint of a model in a format.
 *
 * Takes:   input        see above
 * Gives:   out_fingerprint
 *          out_why      static text that names the field that is wrong, "" when nothing is; may be
 *                       NULL; written also on KVP_E_ARG
 * Returns: KVP_OK; KVP_E_ARG: a field is missing or out of range; KVP_E_IO: libcrypto failed
 * After-failure: out_fingerprint is not written
 * Thread:  the digester's. Cost: O(bytes), allocates nothing
 */
KVP_API kvp_status kvp_fingerprint_make(kvp_digester *digester, const kvp_fingerprint_input *input,
                                        kvp_digest *out_fingerprint, const char **out_why);

/* Make the fingerprint of a model with recurrent state (states.h) from that of its other layers.
 * All records of such a model have it, those of KV too.
 *
 * Takes:   fingerprint  kvp_fingerprint_make of the layers with K and V; all zero is refused
 *          states       [states_bytes] what else the bytes of a state slot depend on, in one fixed
 *                       form: for each layer its kind, sizes, types, and the order of its bytes
 *          states_bytes 1..KVP_FINGERPRINT_BYTES_MAX
 * Gives:   out_fingerprint  SHA-256( "kvpagerT", fingerprint[32], states_bytes u32, states ); may
 *                       be `fingerprint`
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_IO: libcrypto failed
 * After-failure: out_fingerprint is not written
 * Thread:  the digester's. Cost: O(states_bytes), allocates nothing
 */
KVP_API kvp_status kvp_fingerprint_states(kvp_digester *digester, const kvp_digest *fingerprint,
                                          const void *states, uint32_t states_bytes,
                                          kvp_digest *out_fingerprint);

/* Make the root digest of a namespace: the parent of a prompt's first block.
 *
 * Takes:   fingerprint  as made above
 *          name         [name_bytes] the namespace's name, 0..KVP_NAME_MAX_BYTES; NULL when empty
 *          epoch        a flush, a reset or new weights raise it: what was written under another
 *                       epoch cannot be reached any more
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_IO: libcrypto failed
 * After-failure: out_root is not written
 * Thread:  the digester's. Cost: O(name_bytes)
 */
KVP_API kvp_status kvp_digest_root(kvp_digester *digester, const kvp_digest *fingerprint,
                                   const void *name, size_t name_bytes, uint64_t epoch,
                                   kvp_digest *out_root);

/* Make the digest of every full block of a run of tokens, chained from `parent`.
 *
 * May be continued: the last digest is the parent of the tokens that follow. 131,072 tokens in
 * blocks of 16 give 8,192 digests, in about 0.7 ms with SHA instructions.
 *
 * Takes:   input        unit_tokens is S here, the tokens of a block; else as for kvp_hash_units
 *          parent       the root, or the digest of the block before tokens[0]
 * Gives:   out_digests  [n_tokens / S]
 * Returns: KVP_OK; KVP_E_ARG as kvp_hash_units; KVP_E_IO: libcrypto failed
 * After-failure: out_digests is undefined after KVP_E_IO, else not written
 * Thread:  the digester's. Cost: O(n_tokens + n_keys x blocks a key touches), allocates nothing
 */
KVP_API kvp_status kvp_digest_blocks(kvp_digester *digester, const kvp_hash_input *input,
                                     const kvp_digest *parent, kvp_digest *out_digests);

/* Make the key under which a record is stored.
 *
 * Takes:   digest       of the record's last block
 *          group        layer group, 0..KVP_GROUPS_MAX-1
 *          slice        layers and heads of the record
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_IO: libcrypto failed
 * Thread:  the digester's. Cost: O(1)
 */
KVP_API kvp_status kvp_record_key(kvp_digester *digester, const kvp_digest *digest, uint32_t group,
                                  const kvp_slice *slice, kvp_digest *out_key);

/* ------------------------------------------------------------------------------------- identity */

/* What a record is known by. Kinds never match each other. */
enum {
    KVP_IDENTITY_TOKENS = 1, /* tokens, extra keys and our digest: all are compared */
    KVP_IDENTITY_KEY = 2,    /* an engine's full SHA-256 chain key, for engines that give no tokens.
                                Verified against that key, which the engine answers for */
    KVP_IDENTITY_STATE = 3   /* recurrent state after the tokens; compared as TOKENS are */
};

#define KVP_RECORD_BLOCKS_MAX 64u

/* The identity of a record: consecutive sealed blocks of one layer group and rank, or a state. Zero
 * it, then the fields.
 *
 * A record of a state (states.h) is one slot: the state after position + n_blocks x S tokens. Its
 * group is the state group. n_blocks, position and tokens say which blocks end there; the digest
 * stands for all tokens before. It needs no record before it: parent may be all zero, or the key of
 * the record of KV that ends there, which it then goes with.
 */
typedef struct kvp_identity {
    uint32_t kind;          /* KVP_IDENTITY_... */
    uint32_t group;         /* layer group */
    kvp_slice slice;        /* layers and heads of this rank */
    kvp_digest fingerprint; /* kvp_fingerprint_make */
    kvp_digest digest;      /* of the last block; KEY: the engine's key of it */
    kvp_digest parent;     /* key of the record before; all zero: this is the first of its prompt */
    uint64_t space;        /* kvp_namespace_number: what operators list and evict by */
    uint32_t position;     /* of the first token in its sequence; a multiple of block_tokens */
    uint32_t block_tokens; /* S; the store's, if groups have blocks of several sizes */
    uint32_t n_blocks;     /* of S tokens, 1..KVP_RECORD_BLOCKS_MAX, full */
    uint32_t n_keys;       /* TOKENS, STATE: extra keys that touch the record, 0..4096 */
    const int32_t *tokens; /* TOKENS, STATE: [n_blocks * block_tokens]; KEY: NULL */
    const kvp_key *keys;   /* [n_keys] ascending by begin, positions of the sequence */
} kvp_identity;

/* Number a namespace by its name: the first eight bytes of SHA-256("kvpagerN", name), as a
 * little-endian number. Operators distinguish the namespaces of a store by it. Identities do not
 * rely on it.
 *
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_IO: libcrypto failed
 * Thread:  the digester's. Cost: O(name_bytes)
 */
KVP_API kvp_status kvp_namespace_number(kvp_digester *digester, const void *name, size_t name_bytes,
                                        uint64_t *out_number);

#ifdef __cplusplus
}
#endif
#endif
