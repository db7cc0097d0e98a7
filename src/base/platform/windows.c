/* windows: the system's own files, as posix.c has them elsewhere. Paths are in the process's code
 * page, as fopen takes them.
 *
 * A folder stays open and is not shared for deletion: while a save runs it cannot be renamed, so
 * its path, asked for again by each call, stays the same. New files are their owner's alone, where
 * the file system has such rights. A descriptor stands for a handle, and no child inherits it.
 *
 * Nothing of its own puts a folder on the disk: the rename waits until it is there
 * (MOVEFILE_WRITE_THROUGH). It fails while another process has the file open and does not share it
 * for deletion.
 */
#include "base/platform/system.h"
#include "base/platform/which.h"

#if KVPI_WINDOWS

#include <errno.h>
#include <fcntl.h>
#include <io.h>
#include <stdlib.h>
#include <string.h>
#include <windows.h>

#define WRITE_BYTES_MAX ((size_t)1 << 30)

/* --------------------------------------------------------------------- errors, handles, names */

static int last_error(void)
{
    switch (GetLastError()) {
    case ERROR_FILE_NOT_FOUND:
    case ERROR_PATH_NOT_FOUND: return -ENOENT;
    case ERROR_ACCESS_DENIED: return -EACCES;
    case ERROR_SHARING_VIOLATION:
    case ERROR_LOCK_VIOLATION: return -EBUSY;
    case ERROR_FILE_EXISTS:
    case ERROR_ALREADY_EXISTS: return -EEXIST;
    case ERROR_DISK_FULL:
    case ERROR_HANDLE_DISK_FULL: return -ENOSPC;
    case ERROR_NOT_ENOUGH_MEMORY:
    case ERROR_OUTOFMEMORY: return -ENOMEM;
    case ERROR_TOO_MANY_OPEN_FILES: return -EMFILE;
    case ERROR_INVALID_NAME:
    case ERROR_BAD_PATHNAME: return -EINVAL;
    case ERROR_DIRECTORY: return -ENOTDIR;
    case ERROR_WRITE_PROTECT: return -EROFS;
    case ERROR_FILENAME_EXCED_RANGE: return -ENAMETOOLONG;
    case ERROR_NO_UNICODE_TRANSLATION: return -EILSEQ;
    default: return -EIO;
    }
}

static int done_or_error(BOOL is_done)
{
    return is_done ? 0 : last_error();
}

static HANDLE handle_of(int file)
{
    return (HANDLE)_get_osfhandle(file); /* NOLINT(performance-no-int-to-ptr): its interface */
}

static int descriptor_of(HANDLE handle)
{
    const int file = _open_osfhandle((intptr_t)handle, _O_BINARY | _O_NOINHERIT);
    if (file < 0) {
        (void)CloseHandle(handle);
        return -EMFILE;
    }
    return file;
}

/* The text behind `n_before` characters that the caller fills. NULL: see last_error. */
static wchar_t *widen(const char *text, size_t n_before)
{
    const int n = MultiByteToWideChar(CP_ACP, MB_ERR_INVALID_CHARS, text, -1, NULL, 0);
    if (n <= 0) {
        return NULL;
    }
    wchar_t *wide = malloc((n_before + (size_t)n) * sizeof(*wide));
    if (wide == NULL) {
        SetLastError(ERROR_NOT_ENOUGH_MEMORY);
        return NULL;
    }
    (void)MultiByteToWideChar(CP_ACP, MB_ERR_INVALID_CHARS, text, -1, wide + n_before, n);
    return wide;
}

/* The whole path of a name in a folder, such as \\?\C:\folder\name: what begins so is taken as it
 * stands, and no name in it is a device. NULL: see last_error. */
static wchar_t *path_in(int folder, const char *name)
{
    const DWORD n = GetFinalPathNameByHandleW(handle_of(folder), NULL, 0, FILE_NAME_NORMALIZED);
    wchar_t *path = n == 0 ? NULL : widen(name, n);
    if (path == NULL) {
        return NULL;
    }
    const wchar_t first = path[n];
    if (GetFinalPathNameByHandleW(handle_of(folder), path, n, FILE_NAME_NORMALIZED) != n - 1) {
        free(path);
        SetLastError(ERROR_PATH_NOT_FOUND);
        return NULL;
    }
    path[n - 1] = L'\\';
    path[n] = first;
    return path;
}

/* --------------------------------------------------------------------------------- new files */

/* Rights for the user of this process, and for no other. */
struct owner {
    SECURITY_ATTRIBUTES attributes;
    SECURITY_DESCRIPTOR descriptor;
    union {
        TOKEN_USER user;
        unsigned char bytes[sizeof(TOKEN_USER) + SECURITY_MAX_SID_SIZE];
    } user;
    union {
        ACL list;
        unsigned char bytes[sizeof(ACL) + sizeof(ACCESS_ALLOWED_ACE) + SECURITY_MAX_SID_SIZE];
    } rights;
};

static int find_user(struct owner *owner)
{
    HANDLE token;
    DWORD n;
    if (!OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &token)) {
        return 0;
    }
    const BOOL is_found =
        GetTokenInformation(token, TokenUser, &owner->user, sizeof(owner->user), &n);
    (void)CloseHandle(token);
    return is_found;
}

static int fill_owner(struct owner *owner)
{
    SECURITY_DESCRIPTOR *descriptor = &owner->descriptor;
    ACL *list = &owner->rights.list;
    owner->attributes = (SECURITY_ATTRIBUTES){sizeof(owner->attributes), descriptor, FALSE};
    return find_user(owner) && InitializeAcl(list, sizeof(owner->rights), ACL_REVISION) &&
           AddAccessAllowedAce(list, ACL_REVISION, FILE_ALL_ACCESS, owner->user.user.User.Sid) &&
           InitializeSecurityDescriptor(descriptor, SECURITY_DESCRIPTOR_REVISION) &&
           SetSecurityDescriptorDacl(descriptor, TRUE, list, FALSE) &&
           SetSecurityDescriptorControl(descriptor, SE_DACL_PROTECTED, SE_DACL_PROTECTED);
}

static int windows_create(void *context, int folder, const char *name)
{
    struct owner owner;
    (void)context;
    wchar_t *path = path_in(folder, name);
    if (path == NULL || !fill_owner(&owner)) {
        const int error = last_error();
        free(path);
        return error;
    }
    const HANDLE handle = CreateFileW(path, GENERIC_WRITE, 0, &owner.attributes, CREATE_NEW,
                                      FILE_ATTRIBUTE_NORMAL, NULL);
    const int file = handle == INVALID_HANDLE_VALUE ? last_error() : descriptor_of(handle);
    free(path);
    return file;
}

/* --------------------------------------------------------------------------------- the others */

static int is_folder(HANDLE handle)
{
    BY_HANDLE_FILE_INFORMATION about;
    return GetFileInformationByHandle(handle, &about) &&
           (about.dwFileAttributes & FILE_ATTRIBUTE_DIRECTORY) != 0;
}

static int windows_open(void *context, const char *path)
{
    (void)context;
    wchar_t *wide = widen(path, 0);
    if (wide == NULL) {
        return last_error();
    }
    const HANDLE handle = CreateFileW(wide, FILE_LIST_DIRECTORY, FILE_SHARE_READ | FILE_SHARE_WRITE,
                                      NULL, OPEN_EXISTING, FILE_FLAG_BACKUP_SEMANTICS, NULL);
    const int error = handle == INVALID_HANDLE_VALUE ? last_error() : 0;
    free(wide);
    if (error != 0) {
        return error;
    }
    if (!is_folder(handle)) {
        (void)CloseHandle(handle);
        return -ENOTDIR;
    }
    return descriptor_of(handle);
}

static int windows_kind(void *context, int folder, const char *name)
{
    (void)context;
    wchar_t *path = path_in(folder, name);
    if (path == NULL) {
        return last_error();
    }
    const DWORD attributes = GetFileAttributesW(path);
    const int error = attributes == INVALID_FILE_ATTRIBUTES ? last_error() : 0;
    free(path);
    if (error != 0) {
        return error == -ENOENT ? KVPI_SYSTEM_NOTHING : error;
    }
    return (attributes & FILE_ATTRIBUTE_REPARSE_POINT) != 0 ? KVPI_SYSTEM_LINK
           : (attributes & FILE_ATTRIBUTE_DIRECTORY) != 0   ? KVPI_SYSTEM_FOLDER
           : (attributes & FILE_ATTRIBUTE_DEVICE) != 0      ? KVPI_SYSTEM_OTHER
                                                            : KVPI_SYSTEM_FILE;
}

static int64_t windows_write(void *context, int file, const void *bytes, size_t n)
{
    DWORD done;
    (void)context;
    const DWORD most = (DWORD)(n < WRITE_BYTES_MAX ? n : WRITE_BYTES_MAX);
    return WriteFile(handle_of(file), bytes, most, &done, NULL) ? (int64_t)done : last_error();
}

static int windows_sync(void *context, int file)
{
    (void)context;
    return done_or_error(FlushFileBuffers(handle_of(file)));
}

static int windows_sync_folder(void *context, int folder)
{
    (void)context;
    (void)folder;
    return 0;
}

static int windows_rename(void *context, int folder, const char *from, const char *to)
{
    (void)context;
    wchar_t *old = path_in(folder, from);
    wchar_t *new = old == NULL ? NULL : path_in(folder, to);
    const int error = new == NULL
                          ? last_error()
                          : done_or_error(MoveFileExW(
                                old, new, MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH));
    free(new);
    free(old);
    return error;
}

static int windows_remove(void *context, int folder, const char *name)
{
    (void)context;
    wchar_t *path = path_in(folder, name);
    const int error = path == NULL ? last_error() : done_or_error(DeleteFileW(path));
    free(path);
    return error;
}

static int windows_close(void *context, int file)
{
    (void)context;
    return _close(file) != 0 ? -EIO : 0;
}

const struct kvpi_system kvpi_system_files = {
    NULL,           "/\\:",         windows_open, windows_kind,
    windows_create, windows_write,  windows_sync, windows_sync_folder,
    windows_rename, windows_remove, windows_close};

#endif
