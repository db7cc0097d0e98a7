/* kvpager/llama_disk.h: a disk below an engine's host tier. KV that outlives cells, host memory and
 * the process.
 *
 *   cache.max_loads = 8;                             kvp_llama_config.cache
 *   sched.max_loading = 64;                          kvp_llama_config.sched
 *   config.host_blocks = 4096;                       what is read from the disk goes there
 *   kvp_llama_create(&config, model, &params, &engine, &why);
 *
 *   kvp_llama_disk_config disk;
 *   kvp_llama_disk_config_init(&disk);
 *   disk.url = "file:/var/cache/kv?size=64GiB";      store.h
 *   disk.model = "llama-8b q4_k 5f3a...";            which weights these are
 *   kvp_llama_disk_open(engine, &disk, &why);
 *   kvp_llama_disk_space(engine, ns, "", 0, 0);      of each namespace
 *   ... kvp_llama_run and kvp_llama_finish as ever ...
 *   kvp_llama_destroy(engine);                       writes what is complete, and closes the disk
 *
 * Records. A record is the KV of record_tokens consecutive tokens, from a multiple of that on, as
 * one state of llama.cpp: as many as the longest piece of the host tier (stretch_tokens). Only
 * whole records are written and read, so prompts below that length gain nothing, nor does the last
 * record of a prompt that ends with it: its last token is computed.
 *
 * Writing. A record is written when its tokens are computed and committed, while their cells are
 * sure to be there. So it is on the disk when the device evicts it, when the host tier drops it,
 * and when the process is killed. What the disk has is not written again, until it may have lost
 * half of what it has. At most 32 records, or 256 MiB but four at least, are under way each way. A
 * sequence whose records must wait, and that ends first, loses its last ones.
 *
 * Reading. When kvp_llama_run begins, it looks at waiting requests before they are admitted. If the
 * disk has records behind what is cached of a prompt, and reading them is not known to be slower
 * than computing them, the request is held (kvp_sched_hold) until they are in the host tier, at
 * most max_wait_ns. Others go on. Then it is admitted, and hits them. Requests with the same
 * prefix share its reading. The engine measures reading and computing, as for the host tier; what
 * is slower is tried again after some hundred refusals.
 *
 * Never wrong KV. The store compares tokens, the digest of the whole prefix, the model and the
 * namespace, and a checksum of the bytes. The digest also stands for the build of llama.cpp (commit
 * and processor features), the versions of its states, the types of K and V, and what record_tokens
 * and the bytes of a record are: none of these reads another's records. The first record that is
 * read in a process is tried in llama.cpp; if that refuses it, the disk is left alone.
 *
 * Failures. Whatever the disk does, requests are computed: a read that fails is a miss, a write
 * that fails is forgotten. A store that fails repeatedly is left alone for a while (store.h).
 *
 * Not stored: tokens that must not be cached, sequences with extra keys, namespaces without a name
 * here.
 *
 * It is compiled where libkvpager_store is, and needs that library. Programs that do not call
 * kvp_llama_disk_open are not linked with it, and pay nothing.
 *
 * Thread: as all calls on an engine.
 */
#ifndef KVPAGER_LLAMA_DISK_H
#define KVPAGER_LLAMA_DISK_H

#include <kvpager/llama.h>
#include <kvpager/store.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kvp_llama_disk_config {
    size_t struct_size; /* set by kvp_llama_disk_config_init */
    const char *url;    /* of the store: store.h. A directory, "file:PATH?size=BYTES", as a rule */
    const char *model;  /* which weights these are, and whatever else KV depends on besides tokens:
                             adapters of all requests, overrides of rope. Not empty: libllama tells
                             metadata and sizes, which two models can share. They count beside */
    uint64_t max_wait_ns; /* longest hold of a request; default 10^10 */
    uint32_t threads;     /* kvp_store_config: 1 (default); 0: kvp_llama_run does the store's work,
                             for tests */
    uint32_t reserved;    /* 0 */
} kvp_llama_disk_config;

/* Fill `config` with the defaults. A NULL config is ignored. Thread: pure. */
void kvp_llama_disk_config_init(kvp_llama_disk_config *config);

/* Open a disk for an engine that has run and restored nothing yet. Two tokens are computed, to
 * measure the bytes of KV.
 *
 * Takes:   config       copied
 * Gives:   out_why      written always: on failure the field and a sentence; may be NULL
 * Returns: KVP_OK; KVP_E_ARG: also what kvp_store_open refuses; KVP_E_STATE: there is a disk, the
 *          engine has no host tier, max_loads or max_loading is 0, or something is cached already;
 *          KVP_E_NO_MEMORY; KVP_E_IO: the store cannot be opened, or llama.cpp gives no bytes
 * After-failure: the engine has no disk
 */
kvp_status kvp_llama_disk_open(kvp_llama *engine, const kvp_llama_disk_config *config,
                               kvp_why *out_why);

/* Say by which name and epoch a namespace is known on the disk. Its requests are neither written
 * nor read before. Name the adapter in it, if the namespace has one: kvp_llama_adapter_set forgets
 * the name. Raise the epoch when the namespace is flushed, or what was flushed comes back.
 *
 * Takes:   ns           open
 *          name         [name_bytes] 0..KVP_NAME_MAX_BYTES; NULL with 0 bytes: ""
 * Returns: KVP_OK; KVP_E_ARG; KVP_E_STATE: there is no disk; KVP_E_NO_NAMESPACES: max_namespaces
 *          have names; KVP_E_IO: libcrypto failed
 * After-failure: unchanged
 */
kvp_status kvp_llama_disk_space(kvp_llama *engine, kvp_ns ns, const void *name, size_t name_bytes,
                                uint64_t epoch);

/* Forget a namespace, as before its kvp_ns_close. What is stored stays there. Others are ignored.
 * */
void kvp_llama_disk_space_close(kvp_llama *engine, kvp_ns ns);

typedef struct kvp_llama_disk_stats {
    kvp_store_stats store;
    uint32_t record_tokens; /* of a record */
    uint32_t is_off;        /* 1: llama.cpp refused a record, and the disk is left alone */
    uint64_t record_bytes;  /* KV of a record, filled up to 4 KiB */
    uint64_t asked;   /* requests for which the disk was asked: the next seven, and `asking` */
    uint64_t loaded;  /* something was read for them, or for others with their prefix */
    uint64_t nothing; /* the disk had nothing that the cache lacked */
    uint64_t slow;    /* it had, and computing was measured faster */
    uint64_t no_room; /* host memory had no room for it */
    uint64_t failed;  /* what was wanted could not be read, or had gone */
    uint64_t late;    /* max_wait_ns was over; what was being read is cached when it comes */
    uint64_t aborted; /* the request was aborted or paused meanwhile */
    uint64_t busy;    /* requests not asked for, because too many were */
    uint64_t loaded_tokens; /* that were read, and went to the host tier */
    uint64_t load_ns;       /* that this took, from the question on, of all loads */
    uint64_t skipped;       /* records not written, because too many were under way */
    uint32_t asking;        /* gauges: requests that the disk is asked for now */
    uint32_t writing;       /* records that are being written */
} kvp_llama_disk_stats;

/* Read counters and gauges; zero without a disk. A NULL argument is ignored. Thread: read. */
void kvp_llama_disk_stats_get(const kvp_llama *engine, kvp_llama_disk_stats *out_stats);

#ifdef __cplusplus
}
#endif
#endif
