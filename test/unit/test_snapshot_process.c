/* A snapshot in another process: there, too, everything goes on as if nothing had been. */
#define _POSIX_C_SOURCE 200809L

#include <sys/wait.h>
#include <unistd.h>

#include "snaps.h"

TEST(test_another_process_goes_on)
{
    const kvp_config config = snap_config(SNAP_GROUPS);
    kvp_cache *cache;
    assert_ok(kvp_cache_create(&config, NULL, 0, &cache));
    load_run run = run_begin(cache, 5);
    run_on(&run, 200);
    snap s = snap_of(cache, NULL);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        kvp_cache *restored;
        uint64_t digest = 0;
        if (kvp_cache_recover(cache, NULL) != KVP_OK) /* a child's own copy */
            _exit(1);
        run_close(&run); /* the same order of draws */
        if (kvp_cache_create(&config, NULL, 0, &restored) == KVP_OK &&
            snap_load(&s, restored, NULL) == KVP_OK)
            digest = run_again(restored, &run).digest;
        _exit(write(ends[1], &digest, sizeof(digest)) != sizeof(digest));
    }
    uint64_t digest = 0;
    int status;
    assert_int_equal(read(ends[0], &digest, sizeof(digest)), sizeof(digest));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(ends[0]);
    close(ends[1]);
    run_close(&run);
    run_on(&run, 300);
    assert_true(run.digest == digest);
    snap_drop(&s);
    kvp_cache_destroy(cache);
}

TEST_MAIN(NULL, NULL)
