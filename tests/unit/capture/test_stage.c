/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "stage_ops.h"

#include "capture/recovery/recover.h"
#include "random_record.h"
#include "capture/unseen.h"
#include "store/inflight/lost_slots.h"
#include "store/inflight/spans.h"
#include "store/inflight/stages.h"
#include "time/ctime_clock.h"
#include "wayback/when.h"

/* Stages: changes that count together, the view of the past meanwhile, and the effects of a crash. */

static unsigned syncs;
static GBytes *slots_on_disk; /* the file `stages` as a power cut leaves it, if that is known */

static void remember_slots(int fd)
{
    uint8_t data[65 * WB_STAGE_SIZE];
    size_t length;

    ck_assert_int_eq(wb_pread_full(fd, data, sizeof(data), 0, &length), 0);
    g_bytes_unref(slots_on_disk);
    slots_on_disk = g_bytes_new(data, length);
}

/* As if the kernel had written it by itself. */
static void write_slots(void)
{
    int fd = openat(tree.fd, ".wayback/stages", O_RDONLY | O_CLOEXEC);

    remember_slots(fd);
    close(fd);
}

/* Counts (see meson.build). */
int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);

int __wrap_fdatasync(int fd)
{
    struct stat st, stages;

    syncs++;
    if (slots_on_disk && fstat(fd, &st) == 0 && fstatat(tree.fd, ".wayback/stages", &stages, 0) == 0 &&
        st.st_ino == stages.st_ino)
        remember_slots(fd);
    return __real_fdatasync(fd);
}

static int stat_error; /* of each look at an object in the tree; 0: none */

int __real_wb_object_stat(const struct wb_store *store, int fd, const char *name, struct wb_object *object,
                          struct wb_attrs *attrs, struct stat *st);
int __wrap_wb_object_stat(const struct wb_store *store, int fd, const char *name, struct wb_object *object,
                          struct wb_attrs *attrs, struct stat *st);

int __wrap_wb_object_stat(const struct wb_store *store, int fd, const char *name, struct wb_object *object,
                          struct wb_attrs *attrs, struct stat *st)
{
    return stat_error ? stat_error : __real_wb_object_stat(store, fd, name, object, attrs, st);
}

/* ---- ranges ---------------------------------------------------------------------------------- */

static void remember_each_byte(uint64_t seed)
{
    struct wb_ranges ranges = {0};
    struct wb_range gap;
    bool known[200] = {0};

    random_record_seed(seed);
    for (int round = 0; round < 60; round++) {
        uint64_t from = random_below(200), to = from + random_below(200 - from + 1);

        wb_ranges_add(&ranges, from, to);
        for (uint64_t i = from; i < to; i++)
            known[i] = true;
        for (unsigned i = 1; i < ranges.count; i++)
            ck_assert(ranges.items[i - 1].to < ranges.items[i].from);
        from = random_below(200);
        to = from + random_below(200 - from + 1);
        for (uint64_t at = from; wb_ranges_gap(&ranges, at, to, &gap); at = gap.to) {
            for (; at < gap.to; at++) /* no ck_assert for each byte: it is a system call */
                if (known[at] != (at < gap.from))
                    ck_abort_msg("seed %u: byte %u", (unsigned)seed, (unsigned)at);
            from = gap.to;
        }
        for (; from < to; from++)
            if (!known[from])
                ck_abort_msg("seed %u: byte %u", (unsigned)seed, (unsigned)from);
        if (random_below(12) == 0) {
            wb_ranges_clear(&ranges);
            memset(known, 0, sizeof(known));
        }
    }
    wb_ranges_deinit(&ranges);
}

/* Many in one process: each process ends with a search for leaks. */
START_TEST(ranges_remember_each_byte)
{
    for (uint64_t n = 0; n < 20; n++)
        remember_each_byte(7000 + 20 * (uint64_t)_i + n);
}
END_TEST

START_TEST(ranges_are_bounded)
{
    struct wb_ranges ranges = {0};
    struct wb_range gap;

    for (uint64_t i = 0; i < 3 * WB_RANGES_MAX; i++)
        wb_ranges_add(&ranges, 10 * i, 10 * i + 5);
    ck_assert_uint_eq(ranges.count, WB_RANGES_MAX);
    /* Changes that found no space are unknown; adjacent ones are joined. */
    ck_assert(wb_ranges_gap(&ranges, 10 * (WB_RANGES_MAX + 1), 10 * (WB_RANGES_MAX + 1) + 5, &gap));
    wb_ranges_add(&ranges, 0, 10 * WB_RANGES_MAX);
    ck_assert_uint_eq(ranges.count, 1);
    ck_assert(!wb_ranges_gap(&ranges, 0, 10 * WB_RANGES_MAX, &gap));
    wb_ranges_deinit(&ranges);
}
END_TEST

START_TEST(a_slot_is_read_back_and_a_damaged_one_is_not)
{
    struct wb_stage_entry entry = {
        .begin = 77, .object = {3, 4}, .dir = {5, -6}, .attrs = {.mode = S_IFREG | 0640, .size = 12},
        .newest_own = 70, .newest_dir = 71, .actor = 9};
    struct wb_stage_entry back;
    uint8_t data[WB_STAGE_SIZE];

    wb_stage_encode(&entry, data);
    ck_assert_int_eq(wb_stage_decode(data, &back), 0);
    ck_assert_int_eq(back.begin, entry.begin);
    ck_assert(wb_object_equal(back.object, entry.object) && wb_object_equal(back.dir, entry.dir));
    ck_assert_uint_eq(back.attrs.mode, entry.attrs.mode);
    ck_assert_uint_eq(back.attrs.size, entry.attrs.size);
    ck_assert_uint_eq(back.actor, entry.actor);
    ck_assert_int_eq(back.newest_own, entry.newest_own);
    ck_assert_int_eq(back.newest_dir, entry.newest_dir);
    for (unsigned bit = 0; bit < WB_STAGE_SIZE * 8; bit++) {
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        ck_assert_int_eq(wb_stage_decode(data, &back), -EBADMSG);
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    memset(data, 0, sizeof(data));
    ck_assert_int_eq(wb_stage_decode(data, &back), -EBADMSG);
}
END_TEST

/* ---- history --------------------------------------------------------------------------------- */

/* The daemon dies: its memory is lost, and the store is opened again. */
static void die(void)
{
    unsigned aborted;

    stage = wb_stage_free(stage);
    wb_history_free(history);
    tree_release(&tree);
    tree.store = wb_store_free(tree.store);
    tree_open_store(&tree);
    ck_assert_int_eq(wb_recover(tree.store, &aborted), 0);
    ck_assert_int_eq(wb_history_open(&history, tree.store), 0);
}

START_TEST(while_it_lasts_the_past_is_the_state_before)
{
    int64_t before, during, later, after;

    op_make(&tree, "f", "first");
    before = now();
    stage_write("f", 0, "SE", 0);
    during = now();
    stage_write("f", 1, "XYZ", 0);
    stage_write("f", 5, " and more", 0);
    later = now();
    expect_content("f", before, "first");
    expect_content("f", during, "first");
    expect_content("f", later, "first");
    stage_over("f");
    after = now();
    for (int i = 0; i < 2; i++) {
        expect_content("f", before, "first");
        expect_content("f", during, "first");
        expect_content("f", later, "first");
        expect_content("f", after, "SXYZt and more");
        op_write(&tree, "f", 0, "by itself"); /* without a stage */
    }
    expect_content("f", now(), "by itself more");
}
END_TEST

/* Whether others changed it beside the stage is not known then. */
START_TEST(in_a_stage_an_unreadable_file_is_refused_and_a_removed_one_is_not)
{
    static const int errors[] = {-EIO, -EMFILE, -ENFILE, -ENOMEM};
    struct wb_revision *revision;
    struct wb_attrs attrs;
    int64_t during;

    op_make(&tree, "f", "first");
    stage_write("f", 0, "SE", 0);
    during = now();
    stage_write("f", 5, " and more", 0);
    stage_over("f");
    revision = find("f", during, NULL);
    for (unsigned i = 0; i < G_N_ELEMENTS(errors); i++) {
        stat_error = errors[i];
        ck_assert_int_eq(wb_revision_attrs(history, revision, &attrs), errors[i]);
        stat_error = 0;
        ck_assert_int_eq(wb_revision_attrs(history, revision, &attrs), 0);
        ck_assert_uint_eq(attrs.size, 5);
    }
    ck_assert_int_eq(unlinkat(tree.store->src_fd, "f", 0), 0);
    ck_assert_int_eq(wb_revision_attrs(history, revision, &attrs), 0);
    ck_assert_uint_eq(attrs.size, 5);
    wb_revision_unref(revision);
}
END_TEST

START_TEST(a_file_that_only_grows_leaves_no_log)
{
    g_autoptr(GPtrArray) all = NULL;
    int64_t empty;

    op_birth(&tree, "f", WB_OP_CREATE);
    empty = now();
    for (uint64_t i = 0; i < 20; i++)
        stage_write("f", i, "x", 0);
    stage_over("f");
    all = tree_records(&tree);
    ck_assert_ptr_null(kept_find(all, WB_REC_DATA, tree_object(&tree, "f"), WB_FILE_UNDO));
    expect_content("f", empty, "");
    expect_content("f", now(), "xxxxxxxxxxxxxxxxxxxx");
}
END_TEST

START_TEST(the_same_bytes_are_kept_once)
{
    g_autoptr(GPtrArray) all = NULL;
    unsigned count = 0;

    op_make(&tree, "f", "0123456789");
    for (int i = 0; i < 50; i++)
        stage_write("f", 2, i % 2 ? "abc" : "def", 0);
    stage_cut("f", 4);
    stage_over("f");
    all = tree_records(&tree);
    for (guint i = 0; i < all->len; i++)
        count += ((const struct kept *)g_ptr_array_index(all, i))->record.type == WB_REC_DATA;
    ck_assert_uint_eq(count, 2);
    expect_content("f", now(), "01ab");
}
END_TEST

START_TEST(a_change_that_failed_keeps_nothing)
{
    int64_t before;

    op_make(&tree, "f", "0123456789");
    before = now();
    stage_write("f", 2, "abc", -EFBIG);
    stage_write("f", 2, "abc", 0);
    stage_over("f");
    expect_content("f", before, "0123456789");
    expect_content("f", now(), "01abc56789");
}
END_TEST

START_TEST(a_crash_ends_it_once)
{
    int64_t before, during, after;
    struct wb_stage_entry entry;
    struct wb_object object;

    op_make(&tree, "f", "first");
    op_birth(&tree, "grows", WB_OP_CREATE);
    before = now();
    stage_write(_i ? "grows" : "f", 0, "SECOND", 0);
    object = tree_object(&tree, _i ? "grows" : "f");
    during = now();
    ck_assert_int_eq(wb_stages_find(tree.store, object, &entry, NULL), 1);
    die();
    ck_assert_int_eq(wb_stages_find(tree.store, object, &entry, NULL), 0);
    after = now();
    for (int i = 0; i < 3; i++) {
        expect_content(_i ? "grows" : "f", before, _i ? "" : "first");
        expect_content(_i ? "grows" : "f", during, _i ? "" : "first");
        expect_content(_i ? "grows" : "f", after, "SECOND");
        die();
    }
}
END_TEST

START_TEST(an_end_that_is_there_is_not_written_again)
{
    struct wb_stage_entry entry;
    struct wb_object object;
    int64_t after;

    op_make(&tree, "f", "first");
    op_birth(&tree, "grows", WB_OP_CREATE);
    stage_write(_i ? "grows" : "f", 0, "SECOND", 0);
    object = tree_object(&tree, _i ? "grows" : "f");
    ck_assert_int_eq(wb_stages_find(tree.store, object, &entry, NULL), 1);
    stage_over(_i ? "grows" : "f");
    after = now();
    /* The slot could not be freed, or a power cut brought it back. */
    ck_assert_int_ge(wb_stages_add(tree.store, &entry), 0);
    die();
    ck_assert_int_eq(wb_stages_find(tree.store, object, &entry, NULL), 0);
    expect_content(_i ? "grows" : "f", after, "SECOND");
}
END_TEST

START_TEST(a_reader_without_the_lock_sees_it_too)
{
    struct wb_error why = {""};
    struct wb_history *other_history = history, *mine;
    struct wb_store *reader;
    int64_t during;

    op_make(&tree, "f", "first");
    stage_write("f", 5, " and more", 0);
    during = now();
    ck_assert_int_eq(wb_store_open(&reader, tree.fd, NULL, 0, &why), 0);
    ck_assert_int_eq(wb_history_open(&mine, reader), 0);
    history = mine;
    expect_content("f", during, "first");
    history = other_history;
    stage_over("f");
    history = mine;
    expect_content("f", during, "first");
    expect_content("f", now(), "first and more");
    wb_history_free(mine);
    wb_store_free(reader);
    history = other_history;
}
END_TEST

/* Random stages, changes outside of any, crashes, and an INDEX every few records. */
START_TEST(random_stages_are_found_again)
{
    enum { MOMENTS = 120 };
    int64_t whens[MOMENTS];
    char *texts[MOMENTS];
    g_autofree char *settled = g_strdup("");

    teardown();
    tree_index_stride = _i % 2 ? 4096 : 0;
    setup();
    random_record_seed(9000 + (uint64_t)_i);
    op_birth(&tree, "f", WB_OP_CREATE);
    for (int i = 0; i < MOMENTS; i++) {
        char text[40];
        size_t length = 1 + random_below(30);

        memset(text, 'a' + (int)random_below(26), length);
        text[length] = '\0';
        switch (random_below(8)) {
        case 0:
            stage_over("f");
            break;
        case 1:
            stage_cut("f", random_below(60));
            break;
        case 2:
            stage_over("f");
            op_chmod(&tree, "f", 0600 + (mode_t)random_below(0100));
            break;
        case 3:
            stage_over("f");
            op_write(&tree, "f", random_below(50), text);
            break;
        case 4:
            if (random_below(4) == 0)
                die();
            break;
        default:
            stage_write("f", random_below(60), text, 0);
        }
        if (!stage) {
            g_autofree char *path = g_build_filename(tree.path, "f", NULL);

            g_clear_pointer(&settled, g_free);
            ck_assert(g_file_get_contents(path, &settled, NULL, NULL));
            /* Holes are zeros, and these tests compare text. */
        }
        whens[i] = now();
        texts[i] = g_strdup(settled);
        if (random_below(5) == 0) {
            int which = (int)random_below((uint64_t)i + 1);

            struct wb_revision *revision = find("f", whens[which], NULL);
            ssize_t n;
            g_autofree char *found = content_of(revision, &n);

            ck_assert_str_eq(found, texts[which]);
            wb_revision_unref(revision);
        }
    }
    stage_over("f");
    for (int i = 0; i < MOMENTS; i++) {
        struct wb_revision *revision = find("f", whens[i], NULL);
        ssize_t n;
        g_autofree char *found = content_of(revision, &n);

        ck_assert_msg(found && strcmp(found, texts[i]) == 0, "moment %d: %s and not %s", i, found, texts[i]);
        wb_revision_unref(revision);
        g_free(texts[i]);
    }
    tree_index_stride = 0;
}
END_TEST

/* ---- syncing ------------------------------------------------------------------------------------- */

static int add_stage(unsigned n)
{
    struct wb_stage_entry entry = {.begin = wb_store_tick(tree.store), .object = {1000 + n, 1}};

    entry.attrs.mode = S_IFREG | 0644;
    return wb_stages_add(tree.store, &entry);
}

START_TEST(slots_are_on_the_disk_before_their_changes)
{
    int slots[3];

    slots[0] = add_stage(0);
    ck_assert_int_ge(slots[0], 0);
    /* Slots that are there when a sync begins are synced, once. */
    syncs = 0;
    ck_assert_int_eq(wb_stages_sync_begin(tree.store), 0);
    ck_assert_uint_eq(syncs, 1);
    ck_assert_int_eq(wb_stages_sync(tree.store), 0);
    ck_assert_uint_eq(syncs, 1);
    /* Slots that begin meanwhile, before it continues. */
    slots[1] = add_stage(1);
    ck_assert_int_ge(slots[1], 0);
    ck_assert_uint_eq(syncs, 2);
    wb_stages_sync_end(tree.store);
    /* And those that begin after it and have ended before the next one, not at all. */
    wb_ctime_next_tick();
    slots[2] = add_stage(2);
    wb_stages_remove(tree.store, slots[2]);
    ck_assert_int_eq(wb_stages_sync(tree.store), 0);
    ck_assert_uint_eq(syncs, 2);
    for (int i = 0; i < 2; i++)
        wb_stages_remove(tree.store, slots[i]);
}
END_TEST

/* Slots of a daemon that was killed are unchanged when the file grows. */
START_TEST(a_table_that_is_found_grows_behind_its_slots)
{
    struct wb_stage_entry found;

    for (unsigned n = 0; n < 70; n++)
        ck_assert_int_eq(add_stage(n), (int)n);
    tree.store = wb_store_free(tree.store);
    tree_open_store(&tree);
    for (unsigned n = 70; n < 300; n++)
        ck_assert_int_ge(add_stage(n), 0);
    tree.store = wb_store_free(tree.store);
    tree_open_store(&tree);
    for (unsigned n = 0; n < 300; n++)
        ck_assert_int_eq(wb_stages_find(tree.store, (struct wb_object){1000 + n, 1}, &found, NULL), 1);
}
END_TEST

/* ---- slots that a power cut takes ------------------------------------------------------------------ */

/* The time in stages.lost; 0: nothing. */
static int64_t lost_since(void)
{
    struct wb_lost_slots slots;
    int64_t since;

    ck_assert_int_eq(wb_lost_slots_read(tree.store->dir_fd, &slots, &since), 0);
    return since == WB_LOST_SLOTS_NONE ? 0 : since;
}

START_TEST(losses_of_a_power_cut_are_noted_before)
{
    int64_t before = wb_ctime_next_tick(), since, second;
    int slots[3];

    tree.store->ordered = true;
    slots[0] = add_stage(0);
    since = lost_since();
    ck_assert_int_ge(since, before);
    ck_assert_int_le(since, wb_ctime_clock());
    wb_ctime_next_tick();
    slots[1] = add_stage(1);
    ck_assert_int_eq(lost_since(), since);
    wb_stages_remove(tree.store, slots[1]);
    ck_assert_int_eq(lost_since(), since);
    /* A sync writes the slot to the disk; one that begins during it is there at once, */
    second = wb_ctime_next_tick();
    ck_assert_int_eq(wb_stages_sync_begin(tree.store), 0);
    ck_assert_int_eq(lost_since(), 0);
    slots[1] = add_stage(1);
    ck_assert_int_eq(lost_since(), 0);
    wb_stages_sync_end(tree.store);
    wb_ctime_next_tick();
    slots[2] = add_stage(2);
    ck_assert_int_gt(lost_since(), second);
    /* and one that begins in the tick in which a sync began: files that were just synced have a ctime of then. */
    do {
        wb_stages_remove(tree.store, slots[2]);
        since = wb_ctime_clock();
        ck_assert_int_eq(wb_stages_sync_begin(tree.store), 0);
        wb_stages_sync_end(tree.store);
        slots[2] = add_stage(2);
        second = lost_since();
    } while (wb_ctime_clock() != since);
    ck_assert_int_eq(second, 0);
    wb_stages_remove(tree.store, slots[2]);
    ck_assert_int_eq(lost_since(), 0);
    wb_stages_remove(tree.store, slots[0]);
    wb_stages_remove(tree.store, slots[1]);
    ck_assert_int_eq(lost_since(), 0);
}
END_TEST

static void expect_refused(const char *path, int64_t when)
{
    struct wb_revision *revision = find(path, when, NULL);
    g_autofree char *text = NULL;
    ssize_t n = 0;

    text = content_of(revision, &n);
    ck_assert_msg(n == -EIO, "%s: %zd %s", path, n, text ? text : "");
    ck_assert_msg(strstr(wb_history_error(), "power cut") != NULL, "%s", wb_history_error());
    wb_revision_unref(revision);
}

/* Everything is on the disk but slots. */
static void lose_power(void)
{
    uint64_t head[3] = {0}; /* boot, mark, newest change */
    size_t length = WB_STAGE_SIZE;
    g_autoptr(GBytes) there = g_steal_pointer(&slots_on_disk); /* the end of this process adds nothing */
    const void *slots = there ? g_bytes_get_data(there, &length) : NULL;
    int fd;

    stage = wb_stage_free(stage);
    wb_history_free(history);
    tree_release(&tree);
    tree.store = wb_store_free(tree.store);
    fd = openat(tree.fd, ".wayback/inflight", O_RDWR | O_CLOEXEC);
    ck_assert_int_eq(wb_pread_exact(fd, head, 8, 16), 0);
    head[1] = htole64(le64toh(head[0]) + 1);
    head[0] = htole64(1);
    ck_assert_int_eq(wb_pwrite_full(fd, head, 16, 24), 0);
    ck_assert_int_eq(ftruncate(fd, 4160), 0);
    close(fd);
    fd = openat(tree.fd, ".wayback/stages", O_RDWR | O_CLOEXEC);
    ck_assert_int_eq(ftruncate(fd, (off_t)length), 0);
    if (slots)
        ck_assert_int_eq(wb_pwrite_full(fd, slots, length, 0), 0);
    close(fd);
}

/* Metadata are on the disk in the order in which they changed, slots are not. */
static void lose_power_with_slots(int64_t since)
{
    int lost = openat(tree.fd, ".wayback/stages.lost", O_RDWR | O_CLOEXEC);

    lose_power();
    ck_assert_int_eq(wb_lost_slots_mark(lost, since), 0);
    close(lost);
}

static void open_again(void)
{
    tree_open_store(&tree);
    ck_assert_int_eq(wb_recover(tree.store, NULL), 0);
    ck_assert_int_eq(wb_history_open(&history, tree.store), 0);
}

static int64_t ctime_of(const char *path, struct wb_object *ret)
{
    struct wb_attrs attrs;

    ck_assert_int_eq(wb_object_stat(tree.store, tree.fd, path, ret, &attrs, NULL), 0);
    return attrs.ctime;
}

/* Growth is in no record; overwritten bytes are, but not the time when the stage ended. */
START_TEST(if_a_slot_was_lost_nothing_is_invented)
{
    const char *present = _i ? "SECOND" : "first and more";
    int64_t before, during, since, ctime;
    struct wb_object object;

    op_make(&tree, "f", "first");
    op_make(&tree, "rests", "as it is");
    /* Longer than the kernel's clock may lag behind. */
    for (int64_t until = wb_ctime_clock() + 30 * 1000 * 1000; wb_ctime_clock() < until;)
        wb_ctime_next_tick();
    before = now();
    tree.store->ordered = true;
    if (_i)
        stage_write("f", 0, "SECOND", 0);
    else
        stage_write("f", 5, " and more", 0);
    during = now();
    since = lost_since();
    lose_power_with_slots(since);
    /* As long as nobody has looked at the file; also for the daemon after the next restart. */
    for (int round = 0; round < 2; round++) {
        open_again();
        ctime = ctime_of("f", &object);
        ck_assert(!wb_spans_has(tree.store, ctime, false));
        ck_assert(wb_spans_has(tree.store, ctime, true));
        expect_refused("f", before);
        expect_refused("f", during);
        expect_content("rests", before, "as it is");
        if (_i)
            expect_refused("f", now());
        else
            expect_content("f", now(), present);
        if (round == 0) {
            wb_history_free(history);
            tree.store = wb_store_free(tree.store);
        }
    }
    /* It is not a change by others. */
    ck_assert_int_eq(wb_capture_unseen(tree.store, object, NULL, NULL, ctime), 0);
    for (int round = 0; round < 2; round++) {
        if (_i)
            expect_content("f", before, "first");
        else
            expect_refused("f", before);
        expect_refused("f", during);
        expect_content("rests", before, "as it is");
        expect_content("f", now(), present);
        /* The next stage is independent of the one that was lost. */
        if (round == 0) {
            stage_write("f", 0, "SECOND", 0);
            stage_write("f", 0, "THIRD!", 0);
            stage_over("f");
            present = _i ? "THIRD!" : "THIRD!and more";
        }
    }
    /* When the whole tree was looked at, nothing is left of it. */
    ck_assert_int_eq(wb_spans_raise_floor(tree.store, wb_ctime_clock()), 0);
    ck_assert(wb_spans_has(tree.store, ctime, false));
    die();
    ck_assert(wb_spans_has(tree.store, ctime, false));
    expect_refused("f", during);
}
END_TEST

/* After a stage that no record ends, since nothing had changed in it; the next mount ends it, or the last close. */
START_TEST(a_slot_that_was_removed_does_not_come_back)
{
    int64_t before, later;

    op_make(&tree, "f", "first");
    before = now();
    stage_write("f", 0, "SECOND", -ENOSPC);
    write_slots();
    if (_i)
        stage_over("f");
    else
        die();
    op_write(&tree, "f", 0, "by itself"); /* without a stage */
    later = now();
    lose_power();
    open_again();
    expect_content("f", before, "first");
    expect_content("f", later, "by itself");
    expect_content("f", now(), "by itself");
}
END_TEST

/* The slot of a file that was removed is on the disk, and the removal is not. */
START_TEST(a_slot_outlives_the_removal_of_its_file)
{
    struct wb_stage_entry entry = {0};
    struct wb_revision *revision;
    struct wb_attrs attrs;
    int64_t before;

    op_make(&tree, "f", "first");
    before = now();
    ck_assert_int_eq(wb_object_stat(tree.store, tree.fd, "f", &entry.object, &entry.attrs, NULL), 0);
    entry.attrs.nlink = 0;
    entry.begin = wb_store_tick(tree.store);
    ck_assert_int_ge(wb_stages_add(tree.store, &entry), 0);
    write_slots();
    lose_power();
    open_again();
    expect_content("f", before, "first");
    revision = find("f", before, NULL);
    ck_assert_int_eq(wb_revision_attrs(history, revision, &attrs), 0);
    ck_assert_uint_eq(attrs.nlink, 1);
    wb_revision_unref(revision);
}
END_TEST

START_TEST(times_of_lost_slots_are_bounded)
{
    struct wb_lost_slots slots = {0};

    for (int64_t i = 1; i <= 3 * WB_LOST_SLOTS_MAX; i++)
        wb_lost_slots_add(&slots, (struct wb_span){i * i * 100, i * i * 100 + 10});
    ck_assert_uint_eq(slots.count, WB_LOST_SLOTS_MAX);
    for (int64_t i = 1; i <= 3 * WB_LOST_SLOTS_MAX; i++) {
        ck_assert_ptr_nonnull(wb_lost_slots_find(&slots, i * i * 100));
        ck_assert_ptr_nonnull(wb_lost_slots_find(&slots, i * i * 100 + 9));
    }
    ck_assert_ptr_null(wb_lost_slots_find(&slots, 99));
    ck_assert_ptr_null(wb_lost_slots_find(&slots, 9 * WB_LOST_SLOTS_MAX * WB_LOST_SLOTS_MAX * 100 + 10));
    wb_lost_slots_add(&slots, (struct wb_span){5, 5});
    ck_assert_uint_eq(slots.count, WB_LOST_SLOTS_MAX);
    wb_lost_slots_forget(&slots, INT64_MAX - 1);
    ck_assert_uint_eq(slots.count, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("stage");
    TCase *parts = tcase_create("parts"), *tcase = tcase_create("history");
    SRunner *runner;
    int failed;

    tcase_add_loop_test(parts, ranges_remember_each_byte, 0, 200 / 20);
    tcase_add_test(parts, ranges_are_bounded);
    tcase_add_test(parts, a_slot_is_read_back_and_a_damaged_one_is_not);
    suite_add_tcase(suite, parts);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, while_it_lasts_the_past_is_the_state_before);
    tcase_add_test(tcase, in_a_stage_an_unreadable_file_is_refused_and_a_removed_one_is_not);
    tcase_add_test(tcase, a_file_that_only_grows_leaves_no_log);
    tcase_add_test(tcase, slots_are_on_the_disk_before_their_changes);
    tcase_add_test(tcase, a_table_that_is_found_grows_behind_its_slots);
    tcase_add_test(tcase, losses_of_a_power_cut_are_noted_before);
    tcase_add_loop_test(tcase, if_a_slot_was_lost_nothing_is_invented, 0, 2);
    tcase_add_loop_test(tcase, a_slot_that_was_removed_does_not_come_back, 0, 2);
    tcase_add_test(tcase, a_slot_outlives_the_removal_of_its_file);
    tcase_add_test(parts, times_of_lost_slots_are_bounded);
    tcase_add_test(tcase, the_same_bytes_are_kept_once);
    tcase_add_test(tcase, a_change_that_failed_keeps_nothing);
    tcase_add_loop_test(tcase, a_crash_ends_it_once, 0, 2);
    tcase_add_loop_test(tcase, an_end_that_is_there_is_not_written_again, 0, 2);
    tcase_add_test(tcase, a_reader_without_the_lock_sees_it_too);
    tcase_add_loop_test(tcase, random_stages_are_found_again, 0, 6);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
