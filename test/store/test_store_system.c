/* The file back end where the system refuses something, for real: io_uring forbidden by a seccomp
 * filter, before and after the store was opened; no memory may be locked; a file system without
 * O_DIRECT (ramfs, mounted where we are root); a write that is still under way when its process is
 * dead (on a loop device whose file system is frozen). And signals, which are not for the store's
 * threads.
 *
 * Each scene is a child, because nothing of this can be taken back. A child that cannot set its
 * scene says so and is counted as skipped. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "mocka.h"
#include "store/file/store_file.h"
#include "store_inputs.h"

enum { PAGE = 4096, BLOCKS = 2, TOKENS = 4, RECORDS = 40, NOBODY = 65534, SKIPPED = 77 };

static char directory[64];

/* In a child: what does not hold ends it, and its line is told. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

/* ------------------------------------------------------------------------------------ the store */

static size_t block_bytes = PAGE;
static const struct kvpi_disk *disk = &kvpi_system_disk;

static kvp_status open_on_disk(const struct kvpi_backend_config *config, void **out_self,
                               char *out_why, size_t why_bytes)
{
    const struct kvpi_engine_config engine = {.n_threads = 4, .queue = &kvpi_uring};
    return kvpi_file_open(config, disk, &engine, out_self, out_why, why_bytes);
}

static kvp_status try_open(const char *choice, kvp_store **out_store, char *out_why,
                           size_t why_bytes)
{
    static struct kvpi_backend backend;
    backend = kvpi_file_backend;
    if (disk != &kvpi_system_disk)
        backend.open = open_on_disk;
    kvp_store_config config;
    kvp_store_config_init(&config);
    char url[128];
    snprintf(url, sizeof url, "file:%s?size=4MiB%s", directory, choice);
    config.url = url;
    config.fingerprint = input_digest(1);
    config.block_tokens = TOKENS;
    config.block_bytes[0] = block_bytes;
    config.record_blocks = BLOCKS;
    config.max_ops = RECORDS;
    return kvpi_store_open(&config, &backend, out_store, out_why, why_bytes);
}

static kvp_store *open_store(void)
{
    kvp_store *store = NULL;
    char why[300];
    if (try_open("", &store, why, sizeof why) != KVP_OK) {
        fprintf(stderr, "%s\n", why);
        _exit(1);
    }
    return store;
}

static int says(const kvp_store *store, const char *part)
{
    char text[300];
    CHECK(kvp_store_describe(store, text, sizeof text) == KVP_OK);
    if (!strstr(text, part))
        fprintf(stderr, "\"%s\" does not say \"%s\"\n", text, part);
    return strstr(text, part) != NULL;
}

static int has_uring(const kvp_store *store)
{
    char text[300];
    CHECK(kvp_store_describe(store, text, sizeof text) == KVP_OK);
    return strncmp(text, "io_uring", 8) == 0;
}

/* All records, at once. Gives how many were OK. */
static unsigned move_all(kvp_store *store, int write)
{
    static _Alignas(PAGE) uint8_t kv[RECORDS][BLOCKS * PAGE];
    static uint8_t expected[BLOCKS * PAGE];
    static int32_t tokens[BLOCKS * TOKENS];
    static kvp_identity identities[RECORDS];
    unsigned n_ok = 0;
    for (unsigned r = 0; r < RECORDS; r++) {
        identities[r] = (kvp_identity){.kind = KVP_IDENTITY_TOKENS,
                                       .slice = {.n_layers = 1, .n_heads = 1},
                                       .fingerprint = input_digest(1),
                                       .digest = input_digest(r),
                                       .block_tokens = TOKENS,
                                       .n_blocks = BLOCKS,
                                       .tokens = tokens};
        void *blocks[BLOCKS] = {kv[r], kv[r] + block_bytes};
        if (write)
            input_pattern(kv[r], BLOCKS * block_bytes, r);
        else
            memset(kv[r], 0xEE, sizeof kv[r]);
        CHECK((write ? kvp_store_put(store, &identities[r], blocks, r)
                     : kvp_store_get(store, &identities[r], blocks, r)) == KVP_OK);
    }
    for (uint32_t n_ended = 0; n_ended < RECORDS;) {
        kvp_store_done done[RECORDS];
        uint32_t n;
        kvp_store_wait(store, UINT64_C(1000000000));
        CHECK(kvp_store_poll(store, done, RECORDS, &n) == KVP_OK);
        for (uint32_t i = 0; i < n; i++) {
            const unsigned r = (unsigned)done[i].tag;
            n_ok += done[i].result == KVP_STORE_OK;
            input_pattern(expected, BLOCKS * block_bytes, r);
            CHECK(done[i].result != KVP_STORE_OK ||
                  memcmp(kv[r], expected, BLOCKS * block_bytes) == 0);
        }
        n_ended += n;
    }
    return n_ok;
}

static void use(kvp_store *store)
{
    CHECK(move_all(store, 1) == RECORDS);
    CHECK(move_all(store, 0) == RECORDS);
}

static void remove_directory(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", directory);
    assert_int_equal(system(command), 0);
}

static void run_scene(void (*scene)(void))
{
    remove_directory();
    assert_int_equal(mkdir(directory, 0700), 0);
    fflush(stdout);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        scene();
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    remove_directory();
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == SKIPPED)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void skip_scene(const char *why)
{
    printf("skipped: %s\n", why);
    fflush(stdout);
    _exit(SKIPPED);
}

/* ------------------------------------------------------------------------------------- io_uring */

/* From now on every thread's `call` gives `error`. */
static void forbid(uint32_t call, uint32_t error)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = sizeof filter / sizeof *filter, .filter = filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0)
        skip_scene("this system has no seccomp filters");
}

static void expect_forbidden(uint32_t error, const char *part)
{
    kvp_store *store = open_store();
    const int had = has_uring(store);
    kvp_store_close(store);
    forbid(SYS_io_uring_setup, error);
    store = open_store();
    CHECK(says(store, "threads, because there is no io_uring"));
    CHECK(!had || says(store, part));
    use(store);
    kvp_store_close(store);
    store = NULL;
    char why[300];
    CHECK(try_open("&engine=io_uring", &store, why, sizeof why) == KVP_E_IO);
    CHECK(strstr(why, "engine=io_uring: ") && strstr(why, "engine=auto"));
    CHECK(!had || strstr(why, part));
}

static void scene_not_permitted(void)
{
    expect_forbidden(EPERM, "the system forbids it");
}

static void scene_hidden(void)
{
    expect_forbidden(ENOSYS, "the kernel has none");
}

/* A process that is shut in only after it was set up. */
static void scene_forbidden_later(void)
{
    kvp_store *store = open_store();
    if (!has_uring(store))
        skip_scene("there is no io_uring here");
    CHECK(says(store, "past the page cache") || says(store, "through the page cache"));
    use(store);
    forbid(SYS_io_uring_enter, EPERM);
    CHECK(move_all(store, 0) == RECORDS);
    CHECK(says(store, "threads, because io_uring stopped working: Operation not permitted"));
    kvp_store_close(store);
    store = open_store();
    CHECK(move_all(store, 0) == RECORDS);
    kvp_store_close(store);
}

static void scene_no_locked_memory(void)
{
    block_bytes = 1000; /* so that memory of ours is used */
    if (geteuid() == 0) {
        CHECK(chown(directory, NOBODY, NOBODY) == 0);
        CHECK(setgroups(0, NULL) == 0 && setresgid(NOBODY, NOBODY, NOBODY) == 0 &&
              setresuid(NOBODY, NOBODY, NOBODY) == 0);
    }
    const struct rlimit none = {0, 0};
    CHECK(setrlimit(RLIMIT_MEMLOCK, &none) == 0);
    char own[80];
    snprintf(own, sizeof own, "%s/kv", directory);
    if (mkdir(own, 0700) != 0)
        skip_scene("nobody may not write here");
    scoped_store *store = open_store();
    use(store);
    /* Old kernels count the ring itself, and there is none. */
    CHECK(!has_uring(store) || says(store, "io_uring, without registered memory: "));
}

TEST(test_io_uring_that_is_not_permitted)
{
    run_scene(scene_not_permitted);
}

TEST(test_io_uring_that_is_hidden)
{
    run_scene(scene_hidden);
}

TEST(test_io_uring_that_is_forbidden_later)
{
    run_scene(scene_forbidden_later);
}

TEST(test_no_memory_may_be_locked)
{
    run_scene(scene_no_locked_memory);
}

/* -------------------------------------------------------------------------------------- signals */

/* May one of this process's signals be given to that thread? */
static int takes_signals(const char *thread)
{
    char path[300], line[200];
    unsigned long long blocked = 0;
    snprintf(path, sizeof path, "/proc/self/task/%s/status", thread);
    FILE *file = fopen(path, "r");
    CHECK(file);
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "SigBlk: %llx", &blocked) == 1)
            break;
    fclose(file);
    return !(blocked >> (SIGALRM - 1) & 1) || !(blocked >> (SIGTERM - 1) & 1);
}

/* A handler of the process runs on its own threads: the store's block all signals. */
static void scene_signals(void)
{
    scoped_store *store = NULL;
    char why[300];
    CHECK(try_open("&engine=threads", &store, why, sizeof why) == KVP_OK);
    use(store);
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks);
    unsigned n_threads = 0;
    unsigned n_taking = 0;
    for (const struct dirent *entry = readdir(tasks); entry; entry = readdir(tasks)) {
        if (entry->d_name[0] == '.')
            continue;
        n_threads++;
        n_taking += takes_signals(entry->d_name) != 0;
    }
    closedir(tasks);
    CHECK(n_threads >= 3); /* this one, the store's, and one that moves records */
    CHECK(n_taking == 1);
}

TEST(test_threads_take_no_signals)
{
    run_scene(scene_signals);
}

/* --------------------------------------------------------------------------------- file systems */

static void use_mounted(const char *kind)
{
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount(kind, directory, kind, 0, NULL) != 0)
        skip_scene("only root can mount");
    for (block_bytes = PAGE; block_bytes > 0; block_bytes = block_bytes == PAGE ? 1000 : 0) {
        static const char *const engines[] = {"", "&engine=threads"};
        for (unsigned e = 0; e < 2; e++) {
            scoped_store *store = NULL;
            char why[300];
            CHECK(try_open(engines[e], &store, why, sizeof why) == KVP_OK);
            CHECK(move_all(store, 1) <= RECORDS);
            CHECK(move_all(store, 0) == RECORDS);
            CHECK(says(store, "through the page cache: the file system has no direct I/O"));
            kvp_store_stats stats;
            CHECK(kvp_store_stats_get(store, &stats) == KVP_OK);
            CHECK(stats.staged == 0);
        }
    }
}

static void scene_ramfs(void)
{
    use_mounted("ramfs");
}

static void scene_tmpfs(void)
{
    use_mounted("tmpfs"); /* Linux 6.6 and newer take the flag */
}

TEST(test_a_file_system_without_direct_io)
{
    run_scene(scene_ramfs);
}

TEST(test_a_file_system_in_memory)
{
    run_scene(scene_tmpfs);
}

/* Blocks that lie anywhere are copied on their way; the others are not. */
static void scene_anywhere(void)
{
    for (unsigned e = 0; e < 2; e++) {
        for (unsigned odd = 0; odd < 2; odd++) {
            scoped_store *store = NULL;
            kvp_store_stats stats;
            char why[300];
            block_bytes = odd ? 1000 : PAGE;
            CHECK(try_open(e ? "&engine=threads" : "", &store, why, sizeof why) == KVP_OK);
            CHECK(move_all(store, 1) <= RECORDS);
            CHECK(move_all(store, 0) == RECORDS);
            CHECK(kvp_store_stats_get(store, &stats) == KVP_OK);
            if (says(store, "past the page cache"))
                CHECK(odd ? stats.staged >= RECORDS : stats.staged == 0);
        }
    }
}

TEST(test_blocks_that_lie_anywhere)
{
    run_scene(scene_anywhere);
}

/* -------------------------------------------------------------------- writes that land too late */

static int holder = -1;
static int n_waits;

/* The dead writer's last write lands while the next one waits for it. */
static int lock_when_landed(void *context, int file, int wait)
{
    if (wait == KVPI_LOCK_SOON && holder >= 0) {
        n_waits++;
        CHECK(flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK);
        close(holder);
        holder = -1;
    }
    return kvpi_system_disk.lock(context, file, wait);
}

static int there(const char *name)
{
    char path[160];
    snprintf(path, sizeof path, "%s/01080f161d242b32/%s", directory, name);
    return access(path, F_OK) == 0;
}

/* A descriptor with the lock of the first slab, as a write that is under way has one. */
static void hold_slab(void)
{
    char path[160];
    snprintf(path, sizeof path, "%s/01080f161d242b32/w0/slab-000000", directory);
    holder = open(path, O_RDWR | O_CLOEXEC);
    CHECK(holder >= 0 && flock(holder, LOCK_EX | LOCK_NB) == 0);
}

static void scene_landed_soon(void)
{
    struct kvpi_disk waiting = kvpi_system_disk;
    waiting.lock = lock_when_landed;
    kvp_store *store = open_store();
    use(store);
    kvp_store_close(store);
    hold_slab();
    disk = &waiting;
    store = open_store();
    CHECK(n_waits == 1);
    CHECK(move_all(store, 0) == RECORDS);
    CHECK(!there("w1"));
    kvp_store_close(store);
}

static void scene_not_landed(void)
{
    kvp_store *store = open_store();
    use(store);
    kvp_store_close(store);
    hold_slab();
    store = open_store();
    CHECK(there("w1/lock")); /* a place of its own, from which the other is read */
    unsigned n_ok = 0;
    while (n_ok < RECORDS) /* a look at the other's log is due now and then only */
        n_ok = move_all(store, 0);
    kvp_store_close(store);
}

/* Every descriptor that transfers go through has the lock, and there is one a slab. */
static void scene_same_descriptor(void)
{
    scoped_store *store = open_store();
    use(store);
    unsigned n_slabs = 0;
    for (int file = 3; file < 256; file++) {
        char name[64];
        char path[256] = "";
        snprintf(name, sizeof name, "/proc/self/fd/%d", file);
        if (readlink(name, path, sizeof path - 1) < 0 || !strstr(path, "/w0/slab-000000"))
            continue;
        n_slabs++;
        CHECK(flock(file, LOCK_EX | LOCK_NB) == 0); /* it has it already: not another one's */
    }
    CHECK(n_slabs == 1);
}

/* ---------------------------------------------------- a write that is under way after a kill -9 */

/* `outer` is mounted from a file, `inner` from a file in it. While outer is frozen, no write to
 * inner ends, and each stays under way. */
static char outer[96];
static int frozen = -1;
static int was_locked;

static int mount_both(void)
{
    char command[1024];
    snprintf(outer, sizeof outer, "%s/outer", directory);
    snprintf(command, sizeof command,
             "{ mkdir %s %s/inner && truncate -s 128M %s/image && mkfs.ext4 -q %s/image && "
             "mount -o loop %s/image %s && truncate -s 64M %s/image && mkfs.ext4 -q %s/image && "
             "mount -o loop %s/image %s/inner; } >/dev/null 2>&1",
             outer, directory, directory, directory, directory, outer, outer, outer, outer,
             directory);
    return unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           system(command) == 0;
}

/* Puts a record more when it is told to, and is killed while that is written. There is room for it
 * in the first slab: a new one would be synced, and who waits for that cannot be killed. */
static void write_and_wait(int in, int out)
{
    static _Alignas(PAGE) uint8_t kv[BLOCKS * PAGE];
    static int32_t tokens[BLOCKS * TOKENS];
    void *blocks[BLOCKS] = {kv, kv + PAGE};
    kvp_identity identity;
    kvp_store *store = open_store();
    char word = has_uring(store) && says(store, "past the page cache");
    use(store);
    CHECK(kvp_store_sync(store, 0) == KVP_OK);
    CHECK(kvp_store_wait(store, UINT64_C(60000000000)) == KVP_OK);
    char go;
    CHECK(write(out, &word, 1) == 1 && read(in, &go, 1) == 1);
    identity = (kvp_identity){.kind = KVP_IDENTITY_TOKENS,
                              .slice = {.n_layers = 1, .n_heads = 1},
                              .fingerprint = input_digest(1),
                              .digest = input_digest(100),
                              .block_tokens = TOKENS,
                              .n_blocks = BLOCKS,
                              .tokens = tokens};
    CHECK(kvp_store_put(store, &identity, blocks, 0) == KVP_OK);
    CHECK(write(out, &word, 1) == 1);
    while (1)
        pause();
}

static void thaw(void)
{
    CHECK(ioctl(frozen, FITHAW, 0) == 0);
    close(frozen);
    frozen = -1;
}

static int lock_when_thawed(void *context, int file, int wait)
{
    if (wait == KVPI_LOCK_SOON && frozen >= 0) {
        was_locked = flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
        thaw();
        wait = KVPI_LOCK_WAIT;
    }
    return kvpi_system_disk.lock(context, file, wait);
}

/* Until a process that was killed is gone: 1; 0: the system keeps it. */
static int is_gone(pid_t child)
{
    const struct timespec moment = {.tv_nsec = 10000000};
    for (unsigned i = 0; i < 300; i++) {
        if (waitpid(child, NULL, WNOHANG) == child)
            return 1;
        nanosleep(&moment, NULL);
    }
    return 0;
}

static void scene_killed_while_writing(void)
{
    int to[2], from[2];
    char word;
    const struct timespec moment = {.tv_nsec = 100000000};
    struct kvpi_disk waiting = kvpi_system_disk;
    waiting.lock = lock_when_thawed;
    if (!mount_both())
        skip_scene("only root can mount, with mkfs.ext4 and loop devices");
    strcat(directory, "/inner");
    CHECK(pipe(to) == 0 && pipe(from) == 0);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        write_and_wait(to[0], from[1]);
    CHECK(read(from[0], &word, 1) == 1);
    frozen = open(outer, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(frozen >= 0 && ioctl(frozen, FIFREEZE, 0) == 0);
    CHECK(write(to[1], "", 1) == 1 && read(from[0], &word, 1) == 1);
    nanosleep(&moment, NULL); /* too short: the scene is skipped */
    kill(child, SIGKILL);
    if (!word || !is_gone(child)) {
        thaw();
        skip_scene("no io_uring with O_DIRECT here, or the kernel waits for the writes");
    }
    disk = &waiting;
    kvp_store *store = open_store();
    CHECK(frozen < 0);
    CHECK(!there("w1") && move_all(store, 0) == RECORDS);
    kvp_store_close(store);
    if (!was_locked)
        skip_scene("the write was not under way yet when the process was killed");
}

TEST(test_a_process_that_is_killed_while_it_writes)
{
    run_scene(scene_killed_while_writing);
}

TEST(test_a_write_that_lands_soon_is_waited_for)
{
    run_scene(scene_landed_soon);
}

TEST(test_a_write_that_does_not_land_is_kept_away_from)
{
    run_scene(scene_not_landed);
}

TEST(test_writes_go_by_the_descriptor_that_is_locked)
{
    run_scene(scene_same_descriptor);
}

/* ----------------------------------------------------------------------------- who may read it */

#define HOME_FORMAT "%s/01080f161d242b32/w0"

static void path_of(char out[256], const char *name)
{
    snprintf(out, 256, HOME_FORMAT "%s%s", directory, *name ? "/" : "", name);
}

static unsigned mode_of(const char *path)
{
    struct stat stat;
    CHECK(lstat(path, &stat) == 0);
    return stat.st_mode & 0777;
}

/* KV can be turned back into text: it is for its owner's eyes, whatever the umask is. */
static void scene_modes(void)
{
    static const char *const files[] = {"lock", "log", "log.new", "slab-000000"};
    char path[256];
    CHECK(rmdir(directory) == 0);
    umask(0);
    scoped_store *store = open_store();
    use(store);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        path_of(path, files[i]);
        CHECK(mode_of(path) == 0600);
    }
    path_of(path, "");
    CHECK(mode_of(path) == 0700);
    *strrchr(path, '/') = 0;
    CHECK(mode_of(path) == 0700);
    CHECK(mode_of(directory) == 0700);
    snprintf(path, sizeof path, "%s/lock", directory);
    CHECK(mode_of(path) == 0600);
}

TEST(test_only_the_owner_may_read)
{
    run_scene(scene_modes);
}

static uint64_t sum_of(const char *path)
{
    FILE *file = fopen(path, "rb");
    uint64_t sum = 1;
    CHECK(file != NULL);
    for (int c = getc(file); c != EOF; c = getc(file))
        sum = sum * 31 + (uint64_t)c;
    fclose(file);
    return sum;
}

/* Somebody who may write here makes a file of the store a link to a file of ours: it is not read,
 * and not one byte of it changes. */
static void scene_links(void)
{
    static const char *const files[] = {"lock", "log", "log.new", "slab-000000"};
    char victim[256];
    snprintf(victim, sizeof victim, "%s.victim", directory);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[256], target[300];
        kvp_store *store = open_store();
        (void)move_all(store, 1); /* it may have them already */
        path_of(path, files[i]);
        CHECK(rename(path, victim) == 0);
        kvp_store_close(store);
        (void)remove(path);
        snprintf(target, sizeof target, "../../../%s.victim", directory);
        CHECK(symlink(target, path) == 0 && access(path, R_OK) == 0);
        const uint64_t before = sum_of(victim);
        char why[300];
        store = NULL;
        if (try_open("", &store, why, sizeof why) == KVP_OK)
            (void)move_all(store, 1);
        kvp_store_close(store);
        CHECK(sum_of(victim) == before);
        (void)remove(path);
        CHECK(remove(victim) == 0);
    }
}

TEST(test_links_are_not_followed)
{
    run_scene(scene_links);
}

int main(void)
{
    snprintf(directory, sizeof directory, "store_system_%ld", (long)getpid());
    return run_all_tests(NULL, NULL);
}
