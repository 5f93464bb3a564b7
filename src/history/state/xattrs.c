/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Extended attributes and link targets at a moment. A link's target never changes; extended attributes are the present
 * ones, with the records after T put back, the oldest of a name last.
 */
#include "history/internal.h"

#include "base/cleanup.h"
#include "base/io.h"
#include "base/xattr.h"
#include "store/identity/flags.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/limits.h>
#include <string.h>
#include <sys/xattr.h>

static enum wb_object_file own_log(const struct wb_revision *revision)
{
    return revision->type == S_IFDIR ? WB_FILE_CATALOG : WB_FILE_UNDO;
}

static bool pass_no_xattrs(const struct wb_record *record, void *data)
{
    const struct wb_revision *revision = data;

    return record->index.first > revision->when && !(record->index.types & (1u << WB_REC_XATTR | 1u << WB_REC_GAP));
}

static int trace_open(struct wb_log_scan *scan, struct wb_history *history, const struct wb_revision *revision)
{
    int r = wb_log_scan_open(scan, history, revision->object, own_log(revision), revision->when);

    scan->source.reader.pass = pass_no_xattrs;
    scan->source.reader.pass_data = (void *)revision;
    scan->through = true;
    return r;
}

/* The next XATTR record of the revision's object itself, or the next record that marks missing ones. */
static int trace_next(struct wb_log_scan *scan, const struct wb_revision *revision, const struct wb_record **ret)
{
    int r;

    while ((r = wb_log_scan_next(scan, ret)) == 0)
        if (wb_log_scan_is_cut(*ret) ||
            ((*ret)->type == WB_REC_XATTR && wb_object_equal((*ret)->xattr.object, revision->object)))
            return 0;
    return r;
}

/* ---- the present ----------------------------------------------------------------------------- */

/* A path by which the object, also a symbolic link, can be opened: length or -errno. */
static int present_fd(struct wb_history *history, struct wb_revision *revision)
{
    int fd, r = wb_resolve(history, revision, &fd, NULL);

    if (r >= 0 && fd < 0)
        return wb_history_fail(-EIO, "the object that was \"%s\" was removed, and is not in the store", revision->name);
    return r < 0 ? r : fd;
}

/* The whole present value in *ret (g_free): its length, -ENODATA, or -errno. */
static ssize_t present_value(struct wb_history *history, struct wb_revision *revision, const char *name, char **ret)
{
    _cleanup_close_ int fd = present_fd(history, revision);
    g_autofree char *value = g_try_malloc(XATTR_SIZE_MAX);
    ssize_t n;

    if (fd < 0)
        return fd;
    if (!value)
        return -ENOMEM;
    n = wb_recorded_xattr(fd, name, value, XATTR_SIZE_MAX);
    if (n < 0)
        return n;
    *ret = g_steal_pointer(&value);
    return n;
}

/* Adds the present names to `set`. 0 or -errno. */
static int present_names(struct wb_history *history, struct wb_revision *revision, GHashTable *set)
{
    _cleanup_close_ int fd = present_fd(history, revision);
    g_autofree char *list = g_try_malloc(XATTR_LIST_MAX);
    ssize_t n;

    if (fd < 0)
        return fd;
    if (!list)
        return -ENOMEM;
    n = wb_listxattr_fd(fd, list, XATTR_LIST_MAX);
    if (n < 0)
        return n == -EOPNOTSUPP ? 0 : (int)n;
    for (const char *name = list; name < list + n; name += strlen(name) + 1)
        g_hash_table_add(set, g_strdup(name));
    return 0;
}

/* Records later than `since` are missing: -EIO, unless the object did not change in that period. */
static int fail_unless_rested(struct wb_history *history, struct wb_revision *revision, int64_t since, unsigned reason)
{
    _cleanup_close_ int fd = present_fd(history, revision);
    struct wb_attrs attrs;

    if (fd >= 0 && wb_object_stat(NULL, fd, NULL, NULL, &attrs, NULL) == 0 && wb_rested_since(attrs.ctime, since))
        return 0;
    return wb_history_fail_gap(reason);
}

/* An object that no longer exists only has the attributes in records. */
static bool is_missing(ssize_t r)
{
    return r == -ENODATA || r == -EOPNOTSUPP;
}

/* ---- the past -------------------------------------------------------------------------------- */

/*
 * In a stage all of a file is as it was when the stage began, since a recorded change of an extended attribute ends it.
 * Where others changed the file in a stage, later moments in it are compared with its begin by wb_revision_attrs alone
 * (check_stage in attrs.c): nobody reaches such a version without a look at its attributes, which is refused. A version
 * that was open before the others' change is of an earlier moment, for which the present is refused here, too.
 */

/* Whether a GAP was skipped since the last call: all attributes that existed before it are in the records before it. */
static bool take_left_out(const struct wb_log_scan *scan, unsigned *known, struct wb_record *earliest, bool *found)
{
    if (scan->left_out == *known)
        return false;
    *known = scan->left_out;
    *earliest = (struct wb_record){0};
    *found = true;
    return true;
}

/*
 * The value in the earliest record after T about `name`: its length with *ret, -ENODATA, WB_ABSENT through
 * *ret_found == false, or -errno.
 */
static ssize_t past_value(struct wb_history *history, struct wb_revision *revision, const char *name, char **ret,
                          bool *ret_found)
{
    const struct wb_record *record;
    struct wb_record earliest = {0}, cut = {0};
    g_autofree char *value = NULL;
    size_t length = strlen(name);
    struct wb_log_scan scan;
    unsigned left_out = 0;
    ssize_t n;
    int r;

    *ret_found = false;
    r = trace_open(&scan, history, revision);
    if (r < 0)
        return r;
    while ((r = trace_next(&scan, revision, &record)) == 0) {
        if (take_left_out(&scan, &left_out, &earliest, ret_found))
            cut.type = 0;
        if (wb_log_scan_is_cut(record)) {
            cut = *record;
        } else if (record->xattr.name_length == length && memcmp(record->xattr.name, name, length) == 0) {
            earliest = *record;
            *ret_found = true;
            cut.type = 0; /* this record has the value, whatever is missing after it */
        }
    }
    if (take_left_out(&scan, &left_out, &earliest, ret_found))
        cut.type = 0;
    if (r >= 0 && cut.type == WB_REC_GAP)
        r = fail_unless_rested(history, revision, cut.gap.since, cut.gap.reason) < 0 ? -EIO : r;
    n = r < 0 ? r : -ENODATA;
    if (r >= 0 && *ret_found && earliest.xattr.present) {
        value = g_try_malloc(earliest.payload_length + 1);
        r = value ? wb_log_read_payload(scan.source.fd, &earliest, value) : -ENOMEM;
        n = r < 0 ? r : (ssize_t)earliest.payload_length;
        if (r == -EBADMSG)
            n = wb_history_fail(-EIO, "the value of %s in the record at %llu is damaged (checksum)", name,
                                (unsigned long long)earliest.offset);
    }
    wb_log_scan_close(&scan);
    if (n >= 0)
        *ret = g_steal_pointer(&value);
    return n;
}

static ssize_t get_value(struct wb_history *history, struct wb_revision *revision, const char *name, void *value,
                         size_t size)
{
    g_autofree char *present = NULL, *past = NULL;
    const char *found_value;
    bool found = false;
    ssize_t n, before = -ENODATA;

    /* Read the present first: its state already has its record (history.h). */
    n = present_value(history, revision, name, &present);
    found_value = present;
    if (revision->when != WB_WHEN_PRESENT) {
        before = past_value(history, revision, name, &past, &found);
        if (found || (before < 0 && before != -ENODATA)) {
            n = before;
            found_value = past;
        }
    }
    if (n < 0)
        return n;
    if (size == 0)
        return n;
    if ((size_t)n > size)
        return -ERANGE;
    memcpy(value, found_value, (size_t)n);
    return n;
}

static int past_names(struct wb_history *history, struct wb_revision *revision, GHashTable *set)
{
    const struct wb_record *record;
    struct wb_record cut = {0};
    struct wb_log_scan scan;
    unsigned left_out = 0;
    int r;

    r = trace_open(&scan, history, revision);
    if (r < 0)
        return r;
    while ((r = trace_next(&scan, revision, &record)) == 0) {
        g_autofree char *name = NULL;

        if (scan.left_out != left_out) {
            g_hash_table_remove_all(set);
            cut.type = 0;
        }
        left_out = scan.left_out;
        if (wb_log_scan_is_cut(record)) {
            cut = *record;
            continue;
        }
        name = g_strndup(record->xattr.name, record->xattr.name_length);
        if (strcmp(name, WB_FLAGS_NAME) == 0)
            continue; /* flags are not listed: wb_revision_flags */
        if (record->xattr.present)
            g_hash_table_add(set, g_steal_pointer(&name));
        else
            g_hash_table_remove(set, name);
    }
    if (scan.left_out != left_out) {
        g_hash_table_remove_all(set);
        cut.type = 0;
    }
    wb_log_scan_close(&scan);
    if (r >= 0 && cut.type == WB_REC_GAP)
        r = fail_unless_rested(history, revision, cut.gap.since, cut.gap.reason);
    return r < 0 ? r : 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static ssize_t list_names(struct wb_history *history, struct wb_revision *revision, char *list, size_t size)
{
    g_autoptr(GHashTable) set = g_hash_table_new_full(g_str_hash, g_str_equal, g_free, NULL);
    g_autofree const char **names = NULL;
    size_t length = 0;
    guint count;
    int r;

    r = present_names(history, revision, set);
    if (r < 0 && !is_missing(r))
        return r;
    r = revision->when == WB_WHEN_PRESENT ? 0 : past_names(history, revision, set);
    if (r < 0)
        return r;
    names = (const char **)g_hash_table_get_keys_as_array(set, &count);
    qsort(names, count, sizeof(*names), compare_names);
    for (guint i = 0; i < count; i++) {
        size_t n = strlen(names[i]) + 1;

        if (size > 0 && length + n > size)
            return -ERANGE;
        if (size > 0)
            memcpy(list + length, names[i], n);
        length += n;
    }
    return (ssize_t)length;
}

ssize_t wb_revision_getxattr(struct wb_history *history, struct wb_revision *revision, const char *name, void *value,
                             size_t size)
{
    return wb_history_end(history, revision->when, get_value(history, revision, name, value, size));
}

ssize_t wb_revision_listxattr(struct wb_history *history, struct wb_revision *revision, char *list, size_t size)
{
    return wb_history_end(history, revision->when, list_names(history, revision, list, size));
}

int wb_revision_flags(struct wb_history *history, struct wb_revision *revision, struct wb_flags *ret)
{
    uint8_t value[WB_FLAGS_SIZE];
    ssize_t n;

    if (revision->type != S_IFREG && revision->type != S_IFDIR)
        return -EOPNOTSUPP;
    n = wb_revision_getxattr(history, revision, WB_FLAGS_NAME, value, sizeof(value));
    /* Before a period that was not recorded: flags that were set have a record. */
    if (n == -ENODATA) {
        *ret = (struct wb_flags){0};
        return 0;
    }
    if (n < 0)
        return (int)n;
    return wb_flags_decode(value, (size_t)n, ret) < 0 ? -EIO : 0;
}

/* ---- links ----------------------------------------------------------------------------------- */

int wb_revision_readlink(struct wb_history *history, struct wb_revision *revision, char **ret)
{
    _cleanup_close_ int fd = -1;
    g_autofree char *target = g_try_malloc(PATH_MAX + 1);
    ssize_t n;

    if (revision->type != S_IFLNK)
        return -EINVAL;
    if (!target)
        return -ENOMEM;
    fd = present_fd(history, revision);
    if (fd < 0)
        return fd;
    n = readlinkat(fd, "", target, PATH_MAX);
    if (n < 0)
        return -errno;
    target[n] = '\0';
    n = wb_history_end(history, revision->when, 0);
    if (n == 0)
        *ret = g_steal_pointer(&target);
    return (int)n;
}
