/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A store is made, opened, written, synced and closed, and its tables change; that ends at any of its system calls: by a
 * kill, a failure or a power cut. The store opens, each table is as before or after, and synced changes are there.
 */
#include "disk_states.h"
#include "store/identity/identities.h"
#include "store/tables/clock.h"
#include "store/tables/received.h"
#include "store/tables/snapshots.h"
#include <sys/mman.h>

struct job {
    const char *name;
    void (*before)(void); /* with the store open */
    int (*run)(void);
    void (*check)(const struct disk_end *end); /* with the store open */
    unsigned ways;
    bool opens; /* it opens the store by itself */
    bool is_bare; /* there is no store */
    bool is_table; /* the next change of it removes the remains */
    unsigned stride; /* of ends; 0: each kill and each cut that loses all, every third of the others */
};

static const struct job *job(void)
{
    return disk_data();
}

/* How far the work came; it outlives the process. */
static struct {
    int steps;
    int64_t whens[4];
} *done;

static int64_t table_before;

/* ---- opening ------------------------------------------------------------------------------------- */

static int open_store(void)
{
    struct wb_error why;
    int r = wb_store_open(&tree.store, tree.fd, NULL, WB_STORE_WRITE | WB_STORE_CREATE, &why);

    return r < 0 ? r : wb_recover(tree.store, NULL);
}

static int open_and_close(void)
{
    int r = open_store();

    tree_release(&tree);
    tree.store = wb_store_free(tree.store);
    return r;
}

static int change_and_close(void)
{
    int r = open_store();

    if (r < 0)
        return r;
    op_write(&tree, "f", 2, "another text");
    op_make(&tree, "h", "new");
    op_remove(&tree, "g", false);
    tree_release(&tree);
    tree.store = wb_store_free(tree.store);
    return 0;
}

/* ---- syncs --------------------------------------------------------------------------------------- */

static int sync_file(const char *path)
{
    int fd = openat(tree.fd, path, O_RDONLY | O_CLOEXEC), r;

    wb_store_write_logs(tree.store);
    r = wb_store_sync_all(tree.store);
    if (r == 0 && fsync(fd) < 0)
        r = -errno;
    close(fd);
    return r;
}

/* As fsync through the mount does; then comes a change that nothing syncs. */
static int write_and_sync(void)
{
    int r;

    op_write(&tree, "f", 0, "synced text");
    r = sync_file("f");
    if (r < 0)
        return r;
    done->whens[0] = wb_store_tick(tree.store);
    done->steps = 1;
    op_write(&tree, "f", 0, "not synced");
    return 0;
}

static char *content_at(const char *path, int64_t when)
{
    struct wb_revision *revision;
    char *text = NULL;
    ssize_t n;
    int error;

    ck_assert_int_eq(wb_history_open(&history, tree.store), 0);
    revision = find(path, when, &error);
    if (revision) {
        text = content_of(revision, &n);
        if (n < 0)
            g_clear_pointer(&text, g_free);
        wb_revision_unref(revision);
    }
    history = wb_history_free(history);
    return text;
}

static void check_synced(const struct disk_end *end)
{
    g_autofree char *text = done->steps > 0 ? content_at("f", done->whens[0]) : NULL;

    if (done->steps == 0)
        return;
    ck_assert_msg(text || disk_is_cut(end), "%s: the synced change is refused", end->at);
    if (text)
        ck_assert_msg(g_str_has_prefix(text, "synced text"), "%s: the synced text is %s", end->at, text);
}

/* Nothing changes it after that. */
static int write_sync_and_rest(void)
{
    int r;

    op_write(&tree, "f", 0, "synced text");
    r = sync_file("f");
    done->whens[0] = wb_store_tick(tree.store);
    done->steps = r == 0;
    op_write(&tree, "g", 0, "of another file");
    return r;
}

static void check_rested(const struct disk_end *end)
{
    g_autofree char *text = done->steps > 0 ? content_at("f", done->whens[0]) : NULL;

    if (done->steps > 0)
        ck_assert_msg(text && g_str_has_prefix(text, "synced text"), "%s: the synced text is %s (%s)", end->at, text,
                      wb_history_error());
}

/* ---- tables -------------------------------------------------------------------------------------- */

static int add_snapshot(const char *name)
{
    struct wb_snapshot snapshot = {.when = wb_store_tick(tree.store), .scope = tree_object(&tree, "."), .uid = 1000,
                                   .name = name, .text = "text", .path = ""};

    return wb_snapshots_add(tree.store, &snapshot, NULL);
}

static int64_t when_of_snapshot;

static void make_snapshots(void)
{
    struct wb_snapshots *all = NULL;

    ck_assert_int_eq(add_snapshot("one"), 0);
    ck_assert_int_eq(add_snapshot("two"), 0);
    ck_assert_int_eq(wb_snapshots_get(tree.store, &all), 0);
    when_of_snapshot = all->list[0].when;
    wb_snapshots_unref(all);
}

static int change_snapshots(void)
{
    int r = add_snapshot("three");

    done->steps = r == 0 ? 1 : done->steps;
    if (r == 0)
        r = wb_snapshots_rename(tree.store, when_of_snapshot, "first");
    done->steps = r == 0 ? 2 : done->steps;
    if (r == 0)
        r = wb_snapshots_delete(tree.store, when_of_snapshot);
    done->steps = r == 0 ? 3 : done->steps;
    return r;
}

/* As after one of the steps; those that were reported as done are on the disk. */
static void check_snapshots(const struct disk_end *end)
{
    static const char *const lists[] = {"one two ", "one two three ", "first two three ", "two three "};
    g_autoptr(GString) names = g_string_new("");
    struct wb_snapshots *all = NULL;
    int found = -1;

    ck_assert_int_eq(wb_snapshots_get(tree.store, &all), 0);
    for (size_t i = 0; i < all->count; i++)
        g_string_append_printf(names, "%s ", all->list[i].name);
    wb_snapshots_unref(all);
    for (int i = 0; i < 4; i++)
        if (strcmp(lists[i], names->str) == 0)
            found = i;
    ck_assert_msg(found == done->steps || found == done->steps + 1, "%s: after %d steps, there are: %s", end->at,
                  done->steps, names->str);
}

static struct wb_identity identity(uint64_t inode, uint64_t object)
{
    return (struct wb_identity){.inode = {inode, 1}, .object = {object, 1}};
}

static int identities_fd = -1; /* not the store, whose tree they would be about */

static int write_identities(unsigned by)
{
    struct wb_identity list[24];

    for (unsigned i = 0; i < G_N_ELEMENTS(list); i++)
        list[i] = identity(1000000 + i, 2000000 + i * by);
    return wb_identities_write(identities_fd, list, G_N_ELEMENTS(list));
}

static void make_identities(void)
{
    if (identities_fd >= 0)
        close(identities_fd);
    ck_assert_int_eq(mkdirat(tree.store->dir_fd, "lost", 0700), 0);
    identities_fd = openat(tree.store->dir_fd, "lost", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_eq(write_identities(1), 0);
}

static int change_identities(void)
{
    return write_identities(3);
}

static void check_identities(const struct disk_end *end)
{
    struct wb_identities *identities;
    unsigned by = 0;

    ck_assert_int_eq(wb_identities_open(&identities, identities_fd), 0);
    for (unsigned i = 1; i < 24; i++) {
        struct wb_object object = {1000000 + i, 1};

        ck_assert_msg(wb_identities_map(identities, &object) == 0, "%s: entry %u", end->at, i);
        if (i == 1)
            by = (unsigned)(object.ino - 2000000);
        ck_assert_msg(object.ino == 2000000 + (uint64_t)i * by && (by == 1 || by == 3), "%s: entry %u is %u", end->at, i,
                      (unsigned)(object.ino - 2000000));
    }
    wb_identities_free(identities);
    ck_assert(!end->ended || end->result < 0 || by == 3);
}

static int change_clock(void)
{
    return wb_store_note_clock(tree.store, 3000, 7000);
}

static void note_clock(void)
{
    ck_assert_int_eq(wb_store_note_clock(tree.store, 2000, 6000), 0);
}

static void check_clock(const struct disk_end *end)
{
    int64_t insisted, known = wb_store_clock_noted(tree.store, &insisted);

    ck_assert_msg((known == 2000 && insisted == 6000) || (known == 3000 && insisted == 7000),
                  "%s: %" PRId64 " and %" PRId64, end->at, known, insisted);
    ck_assert(!end->ended || end->result < 0 || known == 3000);
}

static void mark_erased(void)
{
    ck_assert_int_eq(wb_erased_mark(tree.store->dir_fd, 5000), 0);
    table_before = wb_erased_read(tree.store->dir_fd).last;
}

static int mark_erased_again(void)
{
    return wb_erased_mark(tree.store->dir_fd, table_before + 77);
}

static void check_erased(const struct disk_end *end)
{
    int64_t last = wb_erased_read(tree.store->dir_fd).last;

    ck_assert_msg(last == table_before || last == table_before + 77, "%s: %" PRId64, end->at, last);
    ck_assert(!end->ended || end->result < 0 || last == table_before + 77);
}

/* ---- the test -------------------------------------------------------------------------------------- */

#define ALL_WAYS (DISK_KILLS | DISK_FAILURES | DISK_CUTS)

static const struct job jobs[] = {
    {"make a store", NULL, open_store, NULL, ALL_WAYS, .opens = true, .is_bare = true, .stride = 11},
    {"make and close a store", NULL, open_and_close, NULL, ALL_WAYS, .opens = true, .is_bare = true, .stride = 11},
    {"open and close", NULL, open_and_close, NULL, ALL_WAYS, .opens = true},
    {"change and close", NULL, change_and_close, NULL, DISK_KILLS | DISK_CUTS, .opens = true},
    {"sync, and change again", NULL, write_and_sync, check_synced, DISK_KILLS | DISK_CUTS},
    {"sync", NULL, write_sync_and_rest, check_rested, DISK_KILLS | DISK_CUTS},
    {"snapshots", make_snapshots, change_snapshots, check_snapshots, ALL_WAYS},
    {"identities", make_identities, change_identities, check_identities, ALL_WAYS, .is_table = true},
    {"clock", note_clock, change_clock, check_clock, ALL_WAYS, .is_table = true},
    {"erased", mark_erased, mark_erased_again, check_erased, ALL_WAYS, .is_table = true},
};

static const char *prepare(void)
{
    memset(done, 0, sizeof(*done));
    tree_open(&tree);
    if (job()->is_bare) {
        g_autofree char *path = g_strdup_printf("%s/" WB_STORE_NAME, tree.path);

        leave_store();
        nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
        return tree.path;
    }
    op_make(&tree, "f", "some text, which is longer");
    op_make(&tree, "g", "a second file");
    remember();
    op_write(&tree, "f", 5, "TEXT");
    remember();
    if (job()->before)
        job()->before();
    settle_store();
    return tree.path;
}

static void begin(void)
{
    if (!job()->opens)
        enter_store();
}

static int act(void)
{
    return job()->run();
}

static void check(const struct disk_end *end)
{
    check_store(end, 0);
    /* A change, with its past. */
    if (job()->is_bare) {
        op_make(&tree, "f", "the first");
        remember();
        op_write(&tree, "f", 0, "second");
        remember();
        check_states(end, 0, false);
    }
    if (job()->check)
        job()->check(end);
    if (job()->is_table)
        ck_assert_int_eq(job()->run(), 0);
    check_sound(end);
}

START_TEST(an_end_anywhere_leaves_a_store)
{
    struct disk_trial trial = {.name = jobs[_i].name, .ways = jobs[_i].ways, .prepare = prepare, .begin = begin,
                               .act = act, .check = check, .clean = clean_tree, .stride = 3, .data = &jobs[_i]};
    unsigned runs;

    if (jobs[_i].stride)
        trial.stride = trial.dense_stride = jobs[_i].stride;
    done = mmap(NULL, sizeof(*done), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    runs = disk_each_stop(&trial);
    ck_assert_uint_ge(runs, (unsigned)amount(3, 1));
    munmap(done, sizeof(*done));
    printf("%s: %u runs, %u exact, %u refused\n", trial.name, runs, states_exact, states_refused);
}
END_TEST

static const char *name_of(int i)
{
    return jobs[i].name;
}

int main(void)
{
    return disk_run("store_ends", an_end_anywhere_leaves_a_store, G_N_ELEMENTS(jobs), name_of);
}
