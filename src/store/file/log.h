/* log: which records a directory has: a file of entries that is only ever appended to.
 *
 *   header  64 bytes: "kvpagerL", version u32, entry bytes u32, id u64, slot bytes u64,
 *           header bytes u32, record blocks u32, block tokens u32, slab slots u32, slots u32,
 *           zero u32, XXH3-64 of bytes 0..55
 *   entry   52 bytes: kind u32, slot u32, generation u32, parent slot u32, the beginning of the
 *           key [12], written u32 (minutes since 1970), number of the namespace u64, parent
 *           generation u32, XXH3-64 of bytes 0..43 with the log's id and the entry's number
 *
 * A parent slot from 2^31 on is none: 2^32-1 says that the record is the first of its chain, others
 * that the record before is in another directory, and have 31 bits of its key.
 *
 * An entry that is damaged, or was never written, is skipped: each of the others stands for itself,
 * and none can be one of another log or from another place. What an entry says is proved by the
 * header in the slot when the record is read. */
#ifndef KVPI_STORE_LOG_H
#define KVPI_STORE_LOG_H

#include "store/file/disk.h"
#include "store/index.h"

enum { KVPI_LOG_VERSION = 1, KVPI_LOG_HEADER = 64, KVPI_LOG_ENTRY = 52 };

enum { KVPI_LOG_PUT = 1, KVPI_LOG_DROP = 2 };

/* What all records of a directory have in common. */
struct kvpi_log_form {
    uint64_t slot_bytes;
    uint32_t header_bytes;
    uint32_t record_blocks;
    uint32_t block_tokens;
    uint32_t slab_slots; /* of a slab: decided once for a directory */
    uint32_t n_slots;    /* the most that the writer may have now */
};

struct kvpi_log_entry {
    uint32_t kind;
    uint32_t slot;
    uint32_t generation;
    uint32_t parent; /* slot, KVPI_INDEX_NONE, or kvpi_index_outside */
    uint32_t parent_generation;
    uint32_t written; /* minutes since 1970 */
    uint64_t space;   /* number of the namespace */
    uint8_t key[KVPI_INDEX_KEY];
};

struct kvpi_log {
    const struct kvpi_disk *disk;
    int file;  /* -1: closed */
    int error; /* errno, when opening or reading has failed */
    uint64_t id;
    uint64_t n_entries;
    uint64_t n_reserved; /* entries that the disk has room for; UINT64_MAX: it does not say */
    struct kvpi_log_form form;
    /* While `buffer` is not NULL, entries are gathered in it, and written by kvpi_log_flush or when
     * it is full. */
    uint8_t *buffer;     /* [KVPI_LOG_BUFFER] */
    uint32_t n_buffered; /* entries: the last of n_entries */
};

enum { KVPI_LOG_BUFFER = 1024 * KVPI_LOG_ENTRY };

/* Make a file for a log, with room for so many entries; kvpi_log_begin makes it one. 0 or an errno,
 * and then there is no file. */
int kvpi_log_prepare(struct kvpi_log *log, const struct kvpi_disk *disk, const char *path,
                     uint64_t n_entries);
int kvpi_log_begin(struct kvpi_log *log, const struct kvpi_log_form *form, uint64_t id);

/* Set room on the disk aside for so many entries, those that are there included. 0 or an errno. */
int kvpi_log_reserve(struct kvpi_log *log, uint64_t n_entries);

/* Make an empty log. 0 or an errno, and then there is no file. */
int kvpi_log_create(struct kvpi_log *log, const struct kvpi_disk *disk, const char *path,
                    const struct kvpi_log_form *form, uint64_t id);

/* Open a log. KVP_OK; KVP_E_IO; KVP_E_FORMAT: no log, or its header is damaged; KVP_E_VERSION. */
kvp_status kvpi_log_open(struct kvpi_log *log, const struct kvpi_disk *disk, const char *path,
                         int writable);
void kvpi_log_close(struct kvpi_log *log);

/* Append one entry. 0 or an errno, and then it is as if it had not been called: a later entry takes
 * the place. */
int kvpi_log_append(struct kvpi_log *log, const struct kvpi_log_entry *entry);

/* Write what is in the buffer. 0 or an errno. */
int kvpi_log_flush(struct kvpi_log *log);

/* How many slots a reader has to expect. A writer takes the lowest free slot, and each slot that
 * has or had a record has an entry. So a log cannot make a reader ask for more memory than its own
 * length explains. */
uint32_t kvpi_log_slots(const struct kvpi_log *log);

/* Read `most` entries from number `from` on, and give the number of the next one to read. Damaged
 * ones are left out and counted. */
typedef void (*kvpi_log_entry_fn)(void *context, const struct kvpi_log_entry *entry);
int kvpi_log_read(struct kvpi_log *log, uint64_t from, uint64_t most, kvpi_log_entry_fn entry,
                  void *context, uint64_t *out_next, uint64_t *out_n_damaged);

#endif
