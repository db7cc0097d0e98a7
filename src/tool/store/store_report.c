/* What kvpager store prints: info, verify, list and evict, as text for people while it looks, or as
 * a list of figures. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tool/store/command.h"
#include "tool/text.h"
#include "tool/tool.h"
#include "tool/input/escape.h"

/* A place without any directory of a writer is no store: nothing was verified, listed, dropped. */
static int check_found(const kvpi_store_args *args, int status, uint64_t n_directories)
{
    if (status != TOOL_OK || n_directories > 0)
        return status;
    return kvpi_tool_fail(args->command, "there is no store in %s", kvpi_escape(args->path).of);
}

/* Look at the store. 0; TOOL_FAILED, a message was printed. */
static int scan(const kvpi_store_args *args, const kvp_store_scan_options *options)
{
    char why[512];
    if (kvp_store_scan(args->url, options, why, sizeof why) == KVP_OK)
        return TOOL_OK;
    return kvpi_tool_fail(args->command, "%s", why);
}

/* End the list, and print it if all went well and it was asked for. Returns: an exit status */
static int tell(const kvpi_store_args *args, int status, kvpi_figures *figures)
{
    json_t *list = kvpi_figures_end(figures);
    if (status == TOOL_OK && args->json)
        return kvpi_figures_tell(args->command, list);
    json_decref(list);
    return status;
}

static const char *status_of(const kvp_store_directory *directory)
{
    switch (directory->status) {
    case KVP_OK: return directory->n_slots == 0 ? "answers" : directory->in_use ? "in use" : "idle";
    case KVP_E_VERSION: return "of another version";
    case KVP_E_FORMAT: return "damaged log";
    default: return "not readable";
    }
}

typedef struct state {
    char of[200];
} state;

/* With the reason, if there is one. */
static state state_of(const kvp_store_directory *directory)
{
    state text;
    snprintf(text.of, sizeof text.of, "%s%s%s", status_of(directory), directory->why[0] ? ": " : "",
             directory->why);
    return text;
}

/* "5m", "3h", "12d": whole units, rounded down. */
static kvpi_text age_of(uint64_t now, uint64_t then)
{
    kvpi_text text;
    const uint64_t seconds = then < now ? now - then : 0;
    static const struct {
        uint64_t seconds;
        char unit;
    } units[] = {{86400, 'd'}, {3600, 'h'}, {60, 'm'}, {1, 's'}};
    size_t i = 0;
    while (i < 3 && seconds < 2 * units[i].seconds)
        i++;
    snprintf(text.of, sizeof text.of, "%" PRIu64 "%c", seconds / units[i].seconds, units[i].unit);
    return text;
}

static void print_fingerprint(const uint8_t fingerprint[8], char out[17])
{
    for (int i = 0; i < 8; i++)
        snprintf(out + 2 * i, 3, "%02x", fingerprint[i]);
}

/* ----------------------------------------------------------------------------------------- info */

typedef struct info {
    const kvpi_store_args *args;
    kvpi_figures figures; /* empty without --json */
    uint64_t n_directories;
    uint64_t n_in_use;
    uint64_t n_unusable;
    uint64_t records;
    uint64_t record_bytes;
    uint64_t bytes;
    uint64_t damaged_entries;
} info;

static void add_directory(kvpi_figures *to, const kvp_store_directory *directory)
{
    char fingerprint[17];
    print_fingerprint(directory->fingerprint, fingerprint);
    kvpi_figures_open(to, NULL);
    kvpi_figures_text(to, "path", directory->path);
    kvpi_figures_text(to, "fingerprint", fingerprint);
    kvpi_figures_text(to, "status", status_of(directory));
    kvpi_figures_text(to, "why", directory->why);
    kvpi_figures_flag(to, "in_use", directory->in_use);
    kvpi_figures_integer(to, "opened", directory->opened_ns / 1000000000);
    kvpi_figures_integer(to, "bytes", directory->bytes);
    kvpi_figures_integer(to, "records", directory->records);
    kvpi_figures_integer(to, "slots", directory->n_slots);
    kvpi_figures_integer(to, "slot_bytes", directory->slot_bytes);
    kvpi_figures_integer(to, "header_bytes", directory->header_bytes);
    kvpi_figures_integer(to, "record_blocks", directory->record_blocks);
    kvpi_figures_integer(to, "block_tokens", directory->block_tokens);
    kvpi_figures_integer(to, "log_entries", directory->log_entries);
    kvpi_figures_integer(to, "damaged_log_entries", directory->damaged_entries);
    kvpi_figures_close(to);
}

static void print_directory(const info *in, const kvp_store_directory *directory)
{
    printf("%s%s\n", in->n_directories > 1 ? "\n" : "", kvpi_escape(directory->path).of);
    printf("  state        %s", state_of(directory).of);
    if (directory->opened_ns > 0)
        printf(", opened %s ago", age_of(in->args->now, directory->opened_ns / 1000000000).of);
    printf("\n  %s %s\n", directory->n_slots == 0 ? "memory      " : "files       ",
           kvpi_text_bytes((double)directory->bytes).of);
    if (directory->status != KVP_OK)
        return;
    if (directory->n_slots == 0) { /* a server */
        printf("  records      %s", kvpi_text_count(directory->records).of);
        if (directory->slot_bytes > 0)
            printf(", %s of memory each", kvpi_text_bytes((double)directory->slot_bytes).of);
        printf("\n");
        return;
    }
    printf("  records      %s of at most %s, %s each\n", kvpi_text_count(directory->records).of,
           kvpi_text_count(directory->n_slots).of,
           kvpi_text_bytes((double)directory->slot_bytes).of);
    printf("  a record     %" PRIu32 " block%s of %" PRIu32 " tokens\n", directory->record_blocks,
           directory->record_blocks == 1 ? "" : "s", directory->block_tokens);
    printf("  log          %s entries", kvpi_text_count(directory->log_entries).of);
    if (directory->damaged_entries > 0)
        printf(", %s of them damaged and left out", kvpi_text_count(directory->damaged_entries).of);
    printf("\n");
}

static void take_directory(void *context, const kvp_store_directory *directory)
{
    info *in = context;
    in->n_directories++;
    in->n_in_use += directory->in_use;
    in->n_unusable += directory->status != KVP_OK;
    in->records += directory->records;
    in->record_bytes += directory->records * directory->slot_bytes;
    in->bytes += directory->bytes;
    in->damaged_entries += directory->damaged_entries;
    if (in->args->json)
        add_directory(&in->figures, directory);
    else if (!in->args->prometheus)
        print_directory(in, directory);
}

static void print_gauge(const char *name, const char *help, uint64_t value)
{
    printf("# HELP kvp_store_%s %s\n# TYPE kvp_store_%s gauge\nkvp_store_%s %" PRIu64 "\n", name,
           help, name, name, value);
}

static void print_prometheus(const info *in)
{
    print_gauge("directories", "Directories of writers.", in->n_directories);
    print_gauge("directories_in_use", "Directories whose writer lives.", in->n_in_use);
    print_gauge("directories_unusable", "Directories of another version, or damaged.",
                in->n_unusable);
    print_gauge("records", "Records there now.", in->records);
    print_gauge("bytes", "Bytes that they take, headers included.", in->record_bytes);
    print_gauge("files_bytes", "Bytes of all files, as the size option counts them.", in->bytes);
    print_gauge("damaged_log_entries", "Entries of logs that were left out.", in->damaged_entries);
}

static void print_all(const info *in)
{
    if (in->args->prometheus)
        print_prometheus(in);
    else if (in->n_directories == 0)
        printf("there is no store in %s\n", kvpi_escape(in->args->path).of);
    else if (in->n_directories > 1)
        printf("\nall            %s records, files of %s\n", kvpi_text_count(in->records).of,
               kvpi_text_bytes((double)in->bytes).of);
}

int kvpi_store_info(const kvpi_store_args *args)
{
    info in = {.args = args, .figures = kvpi_figures_begin()};
    kvp_store_scan_options options;
    kvp_store_scan_options_init(&options);
    options.directory = take_directory;
    options.context = &in;
    kvpi_figures_open_array(&in.figures, "directories");
    const int status = scan(args, &options);
    kvpi_figures_close(&in.figures);
    kvpi_figures_integer(&in.figures, "records", in.records);
    kvpi_figures_integer(&in.figures, "bytes", in.bytes);
    if (status == TOOL_OK && !args->json)
        print_all(&in);
    return tell(args, status, &in.figures);
}

/* --------------------------------------------------------------------------------------- verify */

typedef struct verification {
    const kvpi_store_args *args;
    char path[4096]; /* of the directory */
    uint64_t counts[KVP_FOUND_KINDS];
    uint64_t n_directories;
    uint64_t n_bad;
    uint64_t n_unusable;
    kvpi_figures bad; /* a list "bad"; empty without --json */
} verification;

static void begin_directory(void *context, const kvp_store_directory *directory)
{
    verification *v = context;
    snprintf(v->path, sizeof v->path, "%s", directory->path);
    v->n_directories++;
    if (directory->status == KVP_OK)
        return;
    v->n_unusable++;
    if (!v->args->json) {
        printf("%s: %s\n", kvpi_escape(directory->path).of, state_of(directory).of);
        return;
    }
    kvpi_figures_open(&v->bad, NULL);
    kvpi_figures_text(&v->bad, "path", directory->path);
    kvpi_figures_text(&v->bad, "why", state_of(directory).of);
    kvpi_figures_close(&v->bad);
}

static void take_verified(void *context, const kvp_store_record *record)
{
    verification *v = context;
    v->counts[record->found]++;
    if (record->found == KVP_FOUND_GOOD || record->found == KVP_FOUND_RACED)
        return;
    v->n_bad++;
    if (!v->args->json) {
        printf("%s: slot %" PRIu32 ", generation %" PRIu32 ": %s\n", kvpi_escape(v->path).of,
               record->slot, record->generation, kvp_found_name(record->found));
        return;
    }
    kvpi_figures_open(&v->bad, NULL);
    kvpi_figures_text(&v->bad, "path", v->path);
    kvpi_figures_text(&v->bad, "why", kvp_found_name(record->found));
    kvpi_figures_integer(&v->bad, "slot", record->slot);
    kvpi_figures_integer(&v->bad, "generation", record->generation);
    kvpi_figures_close(&v->bad);
}

static void print_counts(const verification *v)
{
    printf("%s records are good\n", kvpi_text_count(v->counts[KVP_FOUND_GOOD]).of);
    for (uint32_t i = 0; i < KVP_FOUND_KINDS; i++)
        if (i != KVP_FOUND_GOOD && v->counts[i] > 0)
            printf("%s: %s\n", kvp_found_name(i), kvpi_text_count(v->counts[i]).of);
}

/* The counts come before the list of what is bad. `bad` NULL: memory was short. */
static kvpi_figures verified(const verification *v, const json_t *bad)
{
    kvpi_figures figures = kvpi_figures_begin();
    for (uint32_t i = 0; i < KVP_FOUND_UNREAD; i++)
        kvpi_figures_integer(&figures, kvp_found_name(i), v->counts[i]);
    kvpi_figures_json(&figures, "bad", json_incref(json_object_get(bad, "bad")));
    return figures;
}

int kvpi_store_verify(const kvpi_store_args *args)
{
    verification v = {.args = args, .bad = kvpi_figures_begin()};
    kvp_store_scan_options options;
    kvp_store_scan_options_init(&options);
    options.depth = KVP_SCAN_PAYLOADS;
    options.one_space = args->one_space;
    options.space = args->space;
    options.secret = args->secret_bytes > 0 ? args->secret : NULL;
    options.secret_bytes = args->secret_bytes;
    options.directory = begin_directory;
    options.record = take_verified;
    options.context = &v;
    kvpi_figures_open_array(&v.bad, "bad");
    int status = scan(args, &options);
    status = check_found(args, status, v.n_directories);
    kvpi_figures_close(&v.bad);
    json_t *bad = kvpi_figures_end(&v.bad);
    kvpi_figures figures = verified(&v, bad);
    json_decref(bad);
    if (status == TOOL_OK && !args->json)
        print_counts(&v);
    status = tell(args, status, &figures);
    if (status != TOOL_OK || v.n_bad + v.n_unusable == 0)
        return status;
    return kvpi_tool_fail(args->command,
                          "%s: %" PRIu64 " record%s and %" PRIu64 " director%s cannot be used; "
                          "engines treat them as misses",
                          args->path, v.n_bad, v.n_bad == 1 ? "" : "s", v.n_unusable,
                          v.n_unusable == 1 ? "y" : "ies");
}

/* ----------------------------------------------------------------------------------------- list */

typedef struct space {
    uint64_t number;
    uint64_t records;
    uint64_t bytes;
    uint64_t oldest;
    uint64_t newest;
} space;

typedef struct listing {
    const kvpi_store_args *args;
    char path[4096];
    uint64_t slot_bytes;
    uint64_t n_directories;
    space *spaces; /* [n] as they were met */
    size_t n;
    size_t capacity;
    size_t last; /* the one that was met last */
    bool no_memory;
    kvpi_figures figures; /* empty without --json */
} listing;

static void list_directory(void *context, const kvp_store_directory *directory)
{
    listing *in = context;
    snprintf(in->path, sizeof in->path, "%s", directory->path);
    in->slot_bytes = directory->n_slots > 0 ? directory->slot_bytes : 0; /* else: its payload */
    if (in->n_directories++ == 0 && in->args->records && !in->args->json)
        printf("%-18s  %8s %6s %8s  %5s  %s\n", "namespace", "slot", "gen.", "position", "age",
               "digest");
    if (directory->status != KVP_OK)
        fprintf(stderr, "kvpager store list: %s: %s, left out\n", kvpi_escape(directory->path).of,
                state_of(directory).of);
}

/* Spaces are kept by number. */
static space *find_space(listing *in, uint64_t number)
{
    if (in->last < in->n && in->spaces[in->last].number == number)
        return &in->spaces[in->last];
    size_t low = 0, high = in->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (in->spaces[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    in->last = low;
    if (low < in->n && in->spaces[low].number == number)
        return &in->spaces[low];
    if (in->n == in->capacity) {
        const size_t capacity = in->capacity == 0 ? 64 : 2 * in->capacity;
        space *grown = realloc(in->spaces, capacity * sizeof *grown);
        in->no_memory |= grown == NULL;
        if (grown == NULL)
            return NULL;
        in->spaces = grown;
        in->capacity = capacity;
    }
    memmove(in->spaces + low + 1, in->spaces + low, (in->n - low) * sizeof *in->spaces);
    in->spaces[low] = (space){.number = number, .oldest = UINT64_MAX};
    in->n++;
    return &in->spaces[low];
}

static void count_record(void *context, const kvp_store_record *record)
{
    listing *in = context;
    space *s = find_space(in, record->space);
    if (s == NULL)
        return;
    s->records++;
    s->bytes += in->slot_bytes > 0 ? in->slot_bytes : record->payload_bytes; /* of a server */
    s->oldest = record->written < s->oldest ? record->written : s->oldest;
    s->newest = record->written > s->newest ? record->written : s->newest;
}

static void list_record(void *context, const kvp_store_record *record)
{
    listing *in = context;
    char number[20];
    char digest[65] = "";
    snprintf(number, sizeof number, "0x%016" PRIx64, record->space);
    for (int i = 0; i < 32; i++)
        snprintf(digest + 2 * i, 3, "%02x", record->digest.bytes[i]);
    if (!in->args->json) {
        printf("%s  %8" PRIu32 " %6" PRIu32 " %8" PRIu32 "  %5s  %s\n", number, record->slot,
               record->generation, record->position, age_of(in->args->now, record->written).of,
               record->found == KVP_FOUND_GOOD ? digest : kvp_found_name(record->found));
        return;
    }
    kvpi_figures *to = &in->figures;
    kvpi_figures_open(to, NULL);
    kvpi_figures_text(to, "path", in->path);
    kvpi_figures_text(to, "namespace", number);
    kvpi_figures_text(to, "found", kvp_found_name(record->found));
    kvpi_figures_integer(to, "slot", record->slot);
    kvpi_figures_integer(to, "generation", record->generation);
    kvpi_figures_integer(to, "written", record->written);
    kvpi_figures_integer(to, "group", record->group);
    kvpi_figures_integer(to, "position", record->position);
    kvpi_figures_integer(to, "blocks", record->n_blocks);
    kvpi_figures_integer(to, "payload_bytes", record->payload_bytes);
    kvpi_figures_text(to, "digest", digest);
    kvpi_figures_close(to);
}

static void add_space(kvpi_figures *to, const char *number, const space *from)
{
    kvpi_figures_open(to, NULL);
    kvpi_figures_text(to, "namespace", number);
    kvpi_figures_integer(to, "records", from->records);
    kvpi_figures_integer(to, "bytes", from->bytes);
    kvpi_figures_integer(to, "oldest", from->oldest);
    kvpi_figures_integer(to, "newest", from->newest);
    kvpi_figures_close(to);
}

static void tell_spaces(listing *in)
{
    if (!in->args->json)
        printf("%-18s  %12s  %10s  %6s  %6s\n", "namespace", "records", "bytes", "oldest",
               "newest");
    for (size_t i = 0; i < in->n; i++) {
        const space *s = &in->spaces[i];
        char number[20];
        snprintf(number, sizeof number, "0x%016" PRIx64, s->number);
        if (in->args->json)
            add_space(&in->figures, number, s);
        else
            printf("%s  %12s  %10s  %6s  %6s\n", number, kvpi_text_count(s->records).of,
                   kvpi_text_bytes((double)s->bytes).of, age_of(in->args->now, s->oldest).of,
                   age_of(in->args->now, s->newest).of);
    }
}

int kvpi_store_list(const kvpi_store_args *args)
{
    listing in = {.args = args, .figures = kvpi_figures_begin()};
    kvp_store_scan_options options;
    kvp_store_scan_options_init(&options);
    options.depth = args->records ? KVP_SCAN_HEADERS : KVP_SCAN_RECORDS;
    options.one_space = args->one_space;
    options.space = args->space;
    options.directory = list_directory;
    options.record = args->records ? list_record : count_record;
    options.context = &in;
    kvpi_figures_open_array(&in.figures, args->records ? "records" : "namespaces");
    int status = scan(args, &options);
    status = check_found(args, status, in.n_directories);
    if (status == TOOL_OK && in.no_memory)
        status = kvpi_tool_fail(args->command, "out of memory");
    if (status == TOOL_OK && !args->records)
        tell_spaces(&in);
    free(in.spaces);
    kvpi_figures_close(&in.figures);
    return tell(args, status, &in.figures);
}

/* ---------------------------------------------------------------------------------------- evict */

enum { WHY_BYTES = 512 };

typedef struct dry_run {
    const kvpi_store_args *args;
    kvp_store_cleaned cleaned;
    char *why; /* [WHY_BYTES] of the first directory that is unusable */
    uint64_t slot_bytes;
    bool skipped;     /* the directory is in use, or unusable */
    uint8_t *goes;    /* [n_slots] of the directory: its slot goes, 2; was seen and stays, 1 */
    uint32_t *parent; /* [n_slots] */
    uint32_t n_slots;
    bool no_memory;
} dry_run;

/* What needs a record that goes, goes: until nothing changes. */
static void end_directory(dry_run *in)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t s = 0; s < in->n_slots; s++) {
            if (in->goes[s] != 1 || in->parent[s] >= in->n_slots || in->goes[in->parent[s]] != 2)
                continue;
            in->goes[s] = 2;
            changed = true;
        }
    }
    for (uint32_t s = 0; s < in->n_slots; s++) {
        in->cleaned.records += in->goes[s] == 2;
        in->cleaned.bytes += in->goes[s] == 2 ? in->slot_bytes : 0;
    }
    free(in->goes);
    free(in->parent);
    in->goes = NULL;
    in->parent = NULL;
    in->n_slots = 0;
}

static void try_directory(void *context, const kvp_store_directory *directory)
{
    dry_run *in = context;
    end_directory(in);
    in->cleaned.directories++;
    in->cleaned.in_use += directory->in_use;
    if (!directory->in_use && directory->status != KVP_OK && in->cleaned.unknown++ == 0)
        snprintf(in->why, WHY_BYTES, "\"%s\": %s", directory->path,
                 directory->why[0] ? directory->why : kvp_status_text(directory->status));
    in->slot_bytes = directory->slot_bytes;
    in->skipped = directory->in_use || directory->status != KVP_OK;
    if (in->skipped)
        return;
    in->goes = calloc(directory->n_slots, sizeof *in->goes);
    in->parent = calloc(directory->n_slots, sizeof *in->parent);
    in->no_memory |= in->goes == NULL || in->parent == NULL;
    in->n_slots = in->no_memory ? 0 : directory->n_slots;
}

static void try_record(void *context, const kvp_store_record *record)
{
    dry_run *in = context;
    const kvpi_store_args *args = in->args;
    const uint64_t minute = in->n_slots > 0 ? 59 : 0; /* a log knows times to the minute */
    const bool matches =
        (!args->one_space || record->space == args->space) &&
        (args->written_before == UINT64_MAX || record->written + minute < args->written_before);
    if (!in->skipped && in->n_slots == 0 && matches && record->found == KVP_FOUND_UNREAD) {
        in->cleaned.records++; /* of a server: what needs it stays */
        in->cleaned.bytes += record->payload_bytes;
    }
    if (in->skipped || record->slot >= in->n_slots)
        return;
    in->goes[record->slot] = matches ? 2 : 1;
    in->parent[record->slot] = record->parent;
}

static int try_evict(const kvpi_store_args *args, kvp_store_cleaned *out, char out_why[WHY_BYTES])
{
    dry_run in = {.args = args, .why = out_why};
    kvp_store_scan_options options;
    kvp_store_scan_options_init(&options);
    options.depth = KVP_SCAN_RECORDS;
    options.directory = try_directory;
    options.record = try_record;
    options.context = &in;
    const int status = scan(args, &options);
    end_directory(&in);
    *out = in.cleaned;
    if (status == TOOL_OK && in.no_memory)
        return kvpi_tool_fail(args->command, "out of memory");
    return status;
}

static int do_evict(const kvpi_store_args *args, kvp_store_cleaned *out, char out_why[WHY_BYTES])
{
    const kvp_store_match match = {
        .written_before = args->written_before, .space = args->space, .one_space = args->one_space};
    if (kvp_store_clean(args->url, &match, out, out_why, WHY_BYTES) == KVP_OK)
        return TOOL_OK;
    return kvpi_tool_fail(args->command, "%s (%" PRIu64 " records were dropped before)", out_why,
                          out->records);
}

static kvpi_figures evicted(const kvpi_store_args *args, const kvp_store_cleaned *cleaned)
{
    kvpi_figures figures = kvpi_figures_begin();
    kvpi_figures_flag(&figures, "dry_run", args->dry_run);
    kvpi_figures_integer(&figures, "records", cleaned->records);
    kvpi_figures_integer(&figures, "bytes", cleaned->bytes);
    kvpi_figures_integer(&figures, "directories", cleaned->directories);
    kvpi_figures_integer(&figures, "in_use", cleaned->in_use);
    kvpi_figures_integer(&figures, "unknown", cleaned->unknown);
    return figures;
}

int kvpi_store_evict(const kvpi_store_args *args)
{
    kvp_store_cleaned cleaned;
    char why[WHY_BYTES] = "";
    int status = args->dry_run ? try_evict(args, &cleaned, why) : do_evict(args, &cleaned, why);
    status = check_found(args, status, cleaned.directories);
    if (status != TOOL_OK)
        return status;
    kvpi_figures figures = evicted(args, &cleaned);
    if (!args->json)
        printf("%s %s records, %s\n", args->dry_run ? "would drop" : "dropped",
               kvpi_text_count(cleaned.records).of, kvpi_text_bytes((double)cleaned.bytes).of);
    status = tell(args, TOOL_OK, &figures);
    if (status == TOOL_OK && cleaned.in_use + cleaned.unknown > 0)
        return kvpi_tool_fail(args->command,
                              "%s: of %" PRIu64 " directories %" PRIu64 " are in use by an engine "
                              "and %" PRIu64 " of another version or damaged: left alone%s%s",
                              args->path, cleaned.directories, cleaned.in_use, cleaned.unknown,
                              *why ? "; the first is " : "", why);
    return status;
}
