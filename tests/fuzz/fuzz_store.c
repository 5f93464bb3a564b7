/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A whole store: the input says which records are in which logs. Each of them is sound by itself, checksums and all;
 * their combination is nonsense. The store is opened, recovered and looked back in, at many times; and versions
 * are thinned out of it.
 */
#include "fuzz_tree.h"

#include "capture/recovery/recover.h"
#include "history/history.h"
#include "history/versions/changes.h"
#include "history/versions/names.h"
#include "maintain/thin/thin_store.h"
#include "store/tables/snapshots.h"
#include "store/timeline/timeline.h"
#include "wayback/dump.h"
#include "wayback/when.h"

#define ENTRIES_MAX 6
#define VERSIONS_MAX 64
#define LOOK_MAX 48 /* objects one input is looked at in */

static unsigned looked;

static void look_at_file(struct wb_history *history, struct wb_revision *revision)
{
    static char bytes[8192];
    struct wb_file_view *view;
    uint64_t at, size;

    if (wb_file_view_open(history, revision, &view) < 0)
        return;
    size = wb_file_view_size(view);
    g_assert_cmpuint(size, <=, INT64_MAX);
    for (unsigned i = 0; i < 3; i++) {
        ssize_t n = wb_file_view_pread(view, bytes, sizeof(bytes), i == 2 ? size / 2 : i == 1 ? MAX(size, 100) - 100 : 0);

        g_assert_cmpint(n, <=, (ssize_t)sizeof(bytes));
    }
    wb_file_view_is_present(view);
    wb_file_view_seek(view, 0, true, &at);
    wb_file_view_seek(view, 0, false, &at);
    wb_file_view_free(view);
}

static void look_at_versions(struct wb_history *history, struct wb_revision *dir, const char *name)
{
    struct wb_versions *versions;
    struct wb_version version;
    unsigned n = 0;
    int r;

    if (wb_versions_open(history, dir, name, &versions) != 0)
        return;
    while (n++ < VERSIONS_MAX && ((r = wb_versions_next(versions, &version)) == 0 || r == WB_DAMAGED)) {
        struct wb_revision *before = NULL;

        if (r == 0 && n % 8 == 1 && wb_versions_before(versions, &before) == 0)
            wb_revision_unref(before);
    }
    wb_versions_free(versions);
}

static void look_at_names(struct wb_history *history, struct wb_revision *dir)
{
    struct wb_names_options options = {.spans = 4};
    struct wb_names *names;

    if (wb_names_open(history, dir, &options, &names) != 0)
        return;
    for (size_t i = 0; i < wb_names_count(names); i++)
        g_assert_cmpuint(strlen(wb_names_get(names, i)->name), <=, WB_NAME_MAX);
    wb_names_free(names);
}

static void look(struct wb_history *history, struct wb_revision *revision, unsigned depth);

static void look_at_dir(struct wb_history *history, struct wb_revision *revision, unsigned depth)
{
    static const char *const names[] = {"a", "d", "gone"};
    struct wb_past_dir *dir;

    look_at_names(history, revision);
    for (unsigned i = 0; i < G_N_ELEMENTS(names); i++) {
        struct wb_revision *child;

        look_at_versions(history, revision, names[i]);
        if (wb_revision_child(history, revision, names[i], &child) == 0) {
            look(history, child, depth + 1);
            wb_revision_unref(child);
        }
    }
    if (wb_past_dir_open(history, revision, &dir) != 0)
        return;
    for (size_t i = 0; i < MIN(wb_past_dir_count(dir), ENTRIES_MAX); i++) {
        struct wb_revision *child;

        if (wb_past_dir_revision(dir, i, &child) != 0)
            continue;
        look(history, child, depth + 1);
        wb_revision_unref(child);
    }
    wb_past_dir_free(dir);
}

static void look(struct wb_history *history, struct wb_revision *revision, unsigned depth)
{
    struct wb_location location = {0};
    struct wb_attrs attrs;
    char list[512], *target;

    if (depth > 3 || looked++ > LOOK_MAX)
        return;
    wb_revision_attrs(history, revision, &attrs);
    wb_revision_listxattr(history, revision, list, sizeof(list));
    wb_revision_getxattr(history, revision, "user.x", list, sizeof(list));
    if (wb_revision_resolve(history, revision, &location) == 0)
        g_free(location.path);
    if (wb_revision_readlink(history, revision, &target) == 0)
        g_free(target);
    /* A walk comes to an end. */
    for (struct wb_revision *above = revision;
         wb_revision_type(revision) == S_IFDIR && (above = wb_revision_parent(above));)
        g_assert_true(wb_revision_when(above) == WB_WHEN_PRESENT ||
                      wb_revision_when(above) != wb_revision_when(revision) ||
                      !wb_object_equal(wb_revision_object(above), wb_revision_object(revision)));
    if (wb_revision_type(revision) == S_IFREG)
        look_at_file(history, revision);
    else if (wb_revision_type(revision) == S_IFDIR)
        look_at_dir(history, revision, depth);
}

static void look_at_changes(struct wb_history *history)
{
    struct wb_times_entry entries[64];
    struct wb_change_reader *reader;
    const struct wb_times *times;
    struct wb_listed_change change;
    size_t count;

    if (wb_change_reader_new(history, &reader) != 0)
        return;
    times = wb_change_reader_times(reader);
    count = times ? MIN(times->count, G_N_ELEMENTS(entries)) : 0;
    if (count && wb_times_read(times, 0, entries, count) == 0) {
        for (size_t i = 0; i < count; i++) {
            char name[WB_NAME_MAX + 1];
            struct wb_object parent;
            bool settled;

            if (wb_change_read(reader, &entries[i], &change) == 0)
                wb_change_place(reader, change.at.dir, change.when, &parent, name, &settled);
        }
    }
    wb_change_reader_free(reader);
}

static void look_at_snapshots(struct wb_store *store)
{
    struct wb_snapshots *all;

    if (wb_snapshots_get(store, &all) != 0)
        return;
    for (size_t i = 0; i < MIN(all->count, 4); i++) {
        char **files;
        uint64_t more;

        if (wb_snapshots_open_files(store, all->list[i].when, &files, &more) == 0)
            g_strfreev(files);
    }
    wb_snapshots_unref(all);
}

static void look_everywhere(struct wb_store *store, const int64_t *whens, unsigned count)
{
    struct wb_history *history;
    struct wb_revision *root;

    if (wb_history_open(&history, store) < 0)
        return;
    wb_timeline_pass(store);
    look_at_changes(history);
    look_at_snapshots(store);
    for (unsigned i = 0; i < count; i++) {
        looked = 0;
        if (wb_revision_root(history, whens[i], &root) != 0)
            continue;
        look(history, root, 0);
        look_at_versions(history, root, "");
        wb_revision_unref(root);
    }
    wb_history_free(history);
}

/* ---- thinning ---------------------------------------------------------------------------------- */

static bool never(void *data)
{
    return false;
}

static bool nobody(void *data, struct wb_object object)
{
    return false;
}

static void nothing(void *data)
{
}

/* The two newest versions of each file are kept, which removes most. */
static void thin(struct wb_store *store)
{
    struct wb_thin_options options = {.retention = {.least = 1, .most = 2}, .stop = never, .own = nothing,
                                      .release = nothing, .in_use = nobody};
    struct wb_thin_count count = {0};
    struct wb_thinner *thinner;
    int r = 0;

    if (wb_thinner_begin(&thinner, store, &options, wb_store_now(store)) < 0)
        return;
    for (unsigned step = 0; r == 0 && step < WB_THIN_STEPS; step++)
        r = wb_thinner_step(thinner, step, &count);
    wb_thinner_free(thinner);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input in = {data, size};
    struct wb_error why = {""};
    struct wb_store *store;
    int64_t whens[FUZZ_WHENS];
    unsigned flags, count, how;

    fuzz_tree_reset();
    how = fuzz_u8(&in);
    flags = how & 1 ? WB_STORE_WRITE : 0;
    count = fuzz_tree_fill(&in, whens);
    if (wb_store_open(&store, fuzz_tree.fd, NULL, flags, &why) < 0)
        return 0;
    if (flags)
        wb_recover(store, NULL);
    look_everywhere(store, whens, count);
    if (flags && how & 2) {
        thin(store);
        look_everywhere(store, whens, count);
    }
    wb_store_free(store);
    fuzz_tree_dump();
    return 0;
}
