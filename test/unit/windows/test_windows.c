/* What only Windows has another way: files that are saved whole, pages, random bits. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <windows.h>

#include <direct.h>
#include <kvpager/seed.h>

#include "base/pages/pages.h"
#include "folder.h"

TEST(test_a_file_is_replaced)
{
    scoped_saved s = make_saved();
    const folder f = make_folder();
    char slashes[sizeof f.file];
    snprintf(slashes, sizeof slashes, "%s/" NAME, f.path);
    write_file(f.file, "old");
    assert_ok(save_to(&s, f.file, NULL));
    assert_file(f.file, &s.new);
    write_file(f.file, "old");
    assert_ok(save_to(&s, slashes, NULL));
    assert_file(f.file, &s.new);
    assert_true(DeleteFileA(f.file));
    assert_int_equal(_chdir(f.path), 0);
    assert_ok(save_to(&s, NAME, NULL)); /* in the folder that one is in */
    assert_file(f.file, &s.new);
    assert_int_equal(_chdir(".."), 0);
    end_folder(&f);
}

/* Whoever reads it and does not let it be deleted keeps the old one. */
TEST(test_a_file_in_use_stays)
{
    scoped_saved s = make_saved();
    const folder f = make_folder();
    const disk_bytes old = {(uint8_t *)"old", 3};
    int said = 0;
    write_file(f.file, "old");
    const HANDLE reader = CreateFileA(f.file, GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE,
                                      NULL, OPEN_EXISTING, 0, NULL);
    assert_true(reader != INVALID_HANDLE_VALUE);
    assert_status(KVP_E_IO, save_to(&s, f.file, &said));
    assert_true(said == EBUSY || said == EACCES);
    assert_true(CloseHandle(reader));
    assert_file(f.file, &old);
    assert_ok(save_to(&s, f.file, NULL));
    assert_file(f.file, &s.new);
    end_folder(&f);
}

TEST(test_what_is_no_file_stays)
{
    scoped_saved s = make_saved();
    const folder f = make_folder();
    char deeper[MAX_PATH + 64];
    int said = 0;
    snprintf(deeper, sizeof deeper, "%s\\none\\" NAME, f.path);
    assert_status(KVP_E_IO, save_to(&s, deeper, &said));
    assert_int_equal(said, ENOENT);
    assert_status(KVP_E_IO, save_to(&s, f.path, &said));
    assert_int_equal(said, EISDIR);
    write_file(f.file, "a file is no folder");
    snprintf(deeper, sizeof deeper, "%s\\" NAME, f.file);
    assert_status(KVP_E_IO, save_to(&s, deeper, &said));
    assert_true(said == ENOTDIR || said == ENOENT);
    snprintf(deeper, sizeof deeper, "%s:stream", f.file);
    assert_status(KVP_E_IO, save_to(&s, deeper, &said));
    end_folder(&f);
}

/* A name that is a device elsewhere is a file's: nothing is written to the device. */
TEST(test_a_device_s_name)
{
    scoped_saved s = make_saved();
    const folder f = make_folder();
    char device[MAX_PATH + 16];
    int said = 0;
    snprintf(device, sizeof device, "%s\\nul", f.path);
    const kvp_status status = save_to(&s, device, &said);
    assert_true(status == KVP_OK || status == KVP_E_IO);
    if (status == KVP_OK) {
        snprintf(device, sizeof device, "\\\\?\\%s\\nul", f.path);
        assert_true(DeleteFileA(device));
    }
    end_folder(&f);
}

static const folder *moving;

static int move_the_folder(void *context, const kvp_snapshot_block *block, void *out)
{
    char other[MAX_PATH + 8];
    (void)context;
    memset(out, block->block, 5000);
    snprintf(other, sizeof other, "%s.other", moving->path);
    assert_false(MoveFileExA(moving->path, other, 0));
    return 0;
}

TEST(test_the_folder_stays_while_a_save_runs)
{
    scoped_saved s = make_saved();
    const folder f = make_folder();
    kvp_snapshot_options options = saved_options(NULL);
    moving = &f;
    options.get = move_the_folder;
    assert_ok(kvp_snapshot_save_file(s.w.cache, &options, f.file, NULL));
    assert_file(f.file, &s.new);
    end_folder(&f);
}

/* Of mappings that were given back nothing is left: the same is mapped more often than addresses or
 * memory would allow. */
TEST(test_pages)
{
    static const struct {
        uint32_t pages;
        size_t alignment;
    } kinds[] = {{KVP_PAGES_SMALL, 4096}, {KVP_PAGES_AUTO, 2 << 20}};
    for (size_t k = 0; k < 2; k++) {
        kvp_memory_options options;
        kvp_memory_options_init(&options);
        options.pages = kinds[k].pages;
        options.touch = 0;
        for (int i = 0; i < 200; i++) {
            void *mapping;
            kvp_memory_info info;
            assert_ok(kvpi_pages_map(((size_t)1 << 30) + 1, &options, &mapping, &info));
            assert_int_equal((uintptr_t)mapping % kinds[k].alignment, 0);
            assert_int_equal(info.pages, KVP_PAGES_SMALL);
            unsigned char *at = mapping;
            assert_int_equal(at[0] | at[info.mapped_bytes - 1], 0);
            at[info.mapped_bytes - 1] = 1;
            kvpi_pages_unmap(mapping, info.mapped_bytes);
        }
    }
}

TEST(test_two_seeds_differ)
{
    uint64_t seeds[64];
    for (size_t i = 0; i < 64; i++) {
        assert_ok(kvp_random_seed(&seeds[i]));
        for (size_t k = 0; k < i; k++)
            assert_true(seeds[i] != seeds[k]);
    }
    assert_status(KVP_E_ARG, kvp_random_seed(NULL));
}

TEST_MAIN(NULL, NULL)
