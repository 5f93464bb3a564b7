/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The small tables beside the logs are written, and that ends at any of its system calls: by a kill, a failure or a
 * power cut. Then the store opens, each state is as it was, or refused if the power failed or the disk does, and:
 *
 * | table          | after a kill or a failure                    | after a power cut                                |
 * |----------------|----------------------------------------------|--------------------------------------------------|
 * | inflight       | has each change that had begun and had not   | has none that did not begin; the clock continues |
 * |                | ended; the clock continues above each moment | above each moment that was synced                |
 * | spans          | have each recorded change, and no other one, | a change by others before the store was opened   |
 * |                | be it before or after                        | is not taken for a recorded one                  |
 * | stages.lost    | has the spans from before or after           | each span is from before or after                |
 * | manifest       | lists no log further than it reaches; at the | the same, before anything is recovered           |
 * |                | next close it lists each log                 |                                                  |
 */
#include "disk_states.h"
#include "capture/unseen.h"
#include "maintain/rewrite/compact.h"
#include "store/cache/manifest_logs.h"
#include "store/directory/shard.h"
#include "store/inflight/inflight_parts.h"
#include "store/inflight/lost_slots.h"
#include "store/inflight/spans.h"
#include "store/tables/manifest.h"
#include <sys/mman.h>
#include <sys/wait.h>

struct job {
    const char *name;
    void (*before)(void);                      /* with the store open */
    void (*between)(void);                     /* with the store closed; may be NULL */
    int (*run)(void);                          /* opens the store */
    void (*check)(const struct disk_end *end); /* with the store closed, before anything else opens it */
    unsigned ways;
};

static const struct job *job(void)
{
    return disk_data();
}

/* How far the work came; it outlives the process. */
static struct {
    unsigned begun, ended, ending, beginning; /* changes, as bits */
    int64_t whens[8], newest, synced;
    unsigned steps;
    int64_t ctimes[8];
} *done;

static int64_t begun, before_others, ctime_of_others, ctime_of_killed;

static bool may_refuse(const struct disk_end *end)
{
    return disk_is_cut(end) || end->way == DISK_BROKEN;
}

static int open_with(unsigned flags)
{
    struct wb_error why;

    return wb_store_open(&tree.store, tree.fd, NULL, flags, &why);
}

static int open_store(void)
{
    return open_with(WB_STORE_WRITE);
}

/* ---- inflight ------------------------------------------------------------------------------------- */

#define FILE_OBJECT ((struct wb_object){770001, 5})
#define DIR_OBJECT ((struct wb_object){770002, 6})

/* The clock is ahead of the wall clock, so that it is only known from the file. */
static int advance_clock(void)
{
    wb_inflight_raise(tree.store->inflight, wb_ctime_latest() + 3600 * WB_WHEN_SECOND);
    return wb_inflight_sync(tree.store->inflight);
}

static int begin_change(unsigned i, int *slot)
{
    done->whens[i] = wb_store_tick(tree.store);
    done->beginning |= 1u << i;
    *slot = wb_inflight_begin(tree.store, done->whens[i], FILE_OBJECT, WB_FILE_UNDO, DIR_OBJECT, WB_FILE_CATALOG, 2);
    if (*slot < 0)
        return *slot;
    done->newest = done->whens[i];
    done->begun |= 1u << i;
    return 0;
}

static void end_change(unsigned i, int slot)
{
    done->ending |= 1u << i;
    wb_inflight_end(tree.store, slot);
    done->ended |= 1u << i;
}

static int use_slots(void)
{
    int slots[8], r = open_store();

    if (r == 0)
        r = advance_clock();
    for (unsigned i = 0; r == 0 && i < 3; i++)
        r = begin_change(i, &slots[i]);
    if (r < 0)
        return r;
    end_change(1, slots[1]);
    r = begin_change(3, &slots[3]);
    if (r < 0)
        return r;
    end_change(0, slots[0]);
    r = wb_inflight_sync(tree.store->inflight);
    if (r < 0)
        return r;
    done->synced = done->newest;
    r = begin_change(4, &slots[4]);
    if (r < 0)
        return r;
    end_change(3, slots[3]);
    end_change(4, slots[4]);
    r = wb_inflight_commit(tree.store->inflight);
    return r;
}

static int find_slot(const struct wb_inflight_entry *entry, void *data)
{
    unsigned *found = data;

    ck_assert_uint_eq(entry->logs, 2);
    ck_assert(wb_object_equal(entry->a, FILE_OBJECT) && wb_object_equal(entry->b, DIR_OBJECT));
    ck_assert(entry->a_kind == WB_FILE_UNDO && entry->b_kind == WB_FILE_CATALOG);
    for (unsigned i = 0; i < G_N_ELEMENTS(done->whens); i++)
        if (done->whens[i] == entry->when)
            *found |= 1u << i;
    ck_assert_msg(*found, "a change of %" PRId64, entry->when);
    return 0;
}

static void check_slots(const struct disk_end *end)
{
    bool is_cut = disk_is_cut(end), fails = end->way >= DISK_FAIL && end->way <= DISK_BROKEN;
    unsigned found = 0;
    int64_t tick;

    tree_open_store(&tree);
    ck_assert_int_eq(wb_inflight_each(tree.store, find_slot, &found), 0);
    ck_assert_msg((found & ~done->beginning) == 0, "%s: %x", end->at, found);
    if (!is_cut)
        ck_assert_msg((done->begun & ~done->ending & ~found) == 0, "%s: of %x only %x", end->at, done->begun, found);
    /* A slot that could not be freed is examined, and nothing is found to do. */
    if (!is_cut && !fails)
        ck_assert_msg((found & done->ended) == 0, "%s: %x of %x has ended", end->at, found, done->ended);
    tick = wb_store_tick(tree.store);
    ck_assert_msg(tick > (is_cut ? done->synced : done->newest), "%s: the clock continues at %" PRId64, end->at, tick);
    if (!is_cut && done->ended)
        ck_assert_int_ge(wb_store_last_change(tree.store), fails ? 0 : done->whens[done->ended & 1 ? 0 : 1]);
    ck_assert_int_eq(wb_inflight_clear(tree.store), 0);
    leave_store();
}

/* ---- spans ------------------------------------------------------------------------------------------ */

static int64_t ctime_of(const char *path)
{
    struct wb_attrs attrs;

    ck_assert_int_eq(wb_object_stat(tree.store, tree.fd, path, NULL, &attrs, NULL), 0);
    return attrs.ctime;
}

static void change_recorded(const char *path)
{
    WB_IN_SPAN(tree.store);

    op_write(&tree, path, 0, "R");
}

static void end_opening(void)
{
    wb_spans_end_opening(tree.store);
    change_recorded("g");
    before_others = now();
}

/* Longer than what counts as recorded after a kill, by the clock of ctime, however late its ticks are. */
static void let_time_pass(void)
{
    for (int64_t until = wb_ctime_latest() + 12 * WB_WHEN_SECOND / 1000; wb_ctime_clock() < until;)
        wb_ctime_next_tick();
}

/* While nothing records. */
static void change_by_others(void)
{
    int fd = openat(tree.fd, "f", O_WRONLY | O_CLOEXEC);

    let_time_pass();
    ck_assert_int_eq(pwrite(fd, "OTHER", 5, 0), 5);
    close(fd);
    ctime_of_others = ctime_of("f");
    let_time_pass();
}

/* A writer is killed; the mark of the clock is the newest moment at which anything may have been synced. */
static void kill_a_writer(void)
{
    g_autofree char *path = g_strdup_printf("%s/" WB_STORE_NAME "/inflight", tree.path);
    pid_t child = fork();
    int64_t mark;
    int fd;

    if (child == 0) {
        ck_assert_int_eq(open_with(WB_STORE_WRITE | WB_STORE_IN_SPANS), 0);
        change_recorded("g");
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    ctime_of_killed = ctime_of("g");
    mark = htole64(wb_when_now() + WB_WHEN_SECOND / 1000);
    fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_eq(wb_pwrite_full(fd, &mark, sizeof(mark), offsetof(struct wb_inflight_head, mark)), 0);
    close(fd);
    before_others = wb_when_now();
    change_by_others();
}

static void cut_off_a_writer(void)
{
    kill_a_writer();
    another_boot();
}

static int record_and_look(void)
{
    int r = open_with(WB_STORE_WRITE | WB_STORE_IN_SPANS);

    if (r == 0)
        r = wb_recover(tree.store, NULL);
    if (r < 0)
        return r;
    wb_spans_begin_fresh(tree.store);
    for (unsigned i = 0; i < 2; i++) {
        change_recorded("g");
        done->ctimes[i] = ctime_of("g");
        done->steps++;
        /* As recovery does, of a change in the time before the store was opened. */
        wb_spans_extend(tree.store, before_others, before_others + 1 + i);
    }
    wb_spans_synced(tree.store, wb_ctime_clock() - 1);
    r = wb_store_sync_all(tree.store);
    if (r == 0) {
        WB_IN_SPAN(tree.store);

        r = wb_capture_unseen_entry(tree.store, tree_object(&tree, "f"), tree_dir(&tree, ""), "f", ctime_of_others);
    }
    if (r >= 0)
        r = wb_store_sync_all(tree.store);
    if (r < 0)
        return r;
    done->steps = 10;
    r = wb_spans_raise_floor(tree.store, wb_ctime_clock());
    change_recorded("g");
    leave_store();
    return r;
}

/* Of the file that others changed, the state before is in no record. */
static char *refused_at(int64_t when)
{
    struct wb_revision *revision;
    char *text = NULL;
    ssize_t n;
    int error;

    ck_assert_int_eq(wb_history_open(&history, tree.store), 0);
    revision = find("f", when, &error);
    if (revision) {
        text = content_of(revision, &n);
        if (n < 0)
            g_clear_pointer(&text, g_free);
        wb_revision_unref(revision);
    }
    history = wb_history_free(history);
    return text;
}

static void check_spans(const struct disk_end *end)
{
    int64_t ctime_of_later = 0;

    /* Others may do so after a kill, too. */
    if (end->way == DISK_STOP && !end->ended) {
        int fd = openat(tree.fd, "h", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

        let_time_pass();
        ck_assert_int_eq(pwrite(fd, "LATER", 5, 0), 5);
        close(fd);
        ctime_of_later = ctime_of("h");
        let_time_pass();
    }
    /* A reader waits for a change that may be under way. */
    for (unsigned writes = end->way != DISK_STOP && end->way != DISK_LOSE_ALL; writes < 2; writes++) {
        g_autofree char *text = NULL;

        ck_assert_int_eq(open_with(writes ? WB_STORE_WRITE | WB_STORE_IN_SPANS : 0), 0);
        if (writes)
            ck_assert_int_eq(wb_recover(tree.store, NULL), 0);
        if (done->steps < 10)
            ck_assert_msg(!wb_spans_has(tree.store, ctime_of_others, false), "%s: a change by others is recorded (%s)",
                          end->at, writes ? "a writer" : "a reader");
        for (unsigned i = 0; i < MIN(done->steps, 2) && !may_refuse(end); i++)
            ck_assert_msg(wb_spans_has(tree.store, done->ctimes[i], false), "%s: change %u is not recorded (%s)",
                          end->at, i, writes ? "a writer" : "a reader");
        ck_assert_msg(wb_spans_has(tree.store, ctime_of_killed, false), "%s: a killed writer is forgotten (%s)",
                      end->at, writes ? "a writer" : "a reader");
        ck_assert_msg(ctime_of_later == 0 || !wb_spans_has(tree.store, ctime_of_later, false),
                      "%s: a change by others after that is recorded (%s)", end->at, writes ? "a writer" : "a reader");
        text = refused_at(before_others);
        ck_assert_msg(!text, "%s: the state before a change by others is shown as %s", end->at, text);
        leave_store();
    }
}

/* ---- stages.lost -------------------------------------------------------------------------------------- */

#define SPAN(n) ((struct wb_span){(n) * 1000, (n) * 1000 + 10})

static void write_spans(void)
{
    struct wb_lost_slots slots = {0};

    for (int64_t n = 1; n < 4; n++)
        wb_lost_slots_add(&slots, SPAN(n));
    ck_assert_int_eq(wb_lost_slots_write(tree.store->dir_fd, &slots), 0);
}

static int change_lost(void)
{
    struct wb_lost_slots slots = {0};
    int64_t since;
    int dir_fd = openat(tree.fd, WB_STORE_NAME, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd, r;

    r = wb_lost_slots_read(dir_fd, &slots, &since);
    fd = r < 0 ? r : wb_lost_slots_open(dir_fd);
    if (fd < 0)
        return fd;
    r = wb_lost_slots_mark(fd, 777 * WB_WHEN_SECOND);
    close(fd);
    done->steps = r == 0;
    for (int64_t n = 4; n < 6; n++)
        wb_lost_slots_add(&slots, SPAN(n));
    if (r == 0)
        r = wb_lost_slots_write(dir_fd, &slots);
    done->steps += r == 0;
    if (r == 0 && fsync(dir_fd) < 0)
        r = -errno;
    close(dir_fd);
    return r;
}

static void check_lost(const struct disk_end *end)
{
    int dir_fd = openat(tree.fd, WB_STORE_NAME, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    unsigned least = job()->before ? 3 : 0;
    struct wb_lost_slots slots;
    int64_t since;

    ck_assert_int_eq(wb_lost_slots_read(dir_fd, &slots, &since), 0);
    close(dir_fd);
    /* A write of the list sets the present time: nothing older is missing then. */
    ck_assert_msg(since == WB_LOST_SLOTS_NONE || since == 777 * WB_WHEN_SECOND || since >= begun, "%s: since %" PRId64,
                  end->at, since);
    for (unsigned i = 0; i < slots.count; i++)
        ck_assert_msg(slots.spans[i].begin % 1000 == 0 && slots.spans[i].end == slots.spans[i].begin + 10 &&
                          slots.spans[i].begin <= 5000, "%s: span %u", end->at, i);
    ck_assert_msg(slots.count == least || slots.count == least + 2, "%s: %u spans", end->at, slots.count);
    if (done->steps == 2)
        ck_assert_msg(slots.count == least + 2, "%s: written, and there are %u spans", end->at, slots.count);
    /* Those that may be lost are announced until their list is on the disk. */
    if (done->steps == 1 && !disk_is_cut(end))
        ck_assert_msg(since != WB_LOST_SLOTS_NONE || slots.count == least + 2, "%s: nothing is announced", end->at);
}

/* ---- the manifest --------------------------------------------------------------------------------------- */

static int list_logs(void)
{
    struct wb_compact how = {.before = WB_WHEN_PRESENT};
    int r = open_store();

    if (r == 0)
        r = wb_recover(tree.store, NULL);
    if (r < 0)
        return r;
    op_write(&tree, "f", 2, "another text");
    op_make(&tree, "h", "new");
    r = wb_store_sync_listed(tree.store);
    if (r < 0)
        return r;
    op_write(&tree, "f", 0, "and another");
    op_write(&tree, "h", 0, "NEW");
    op_remove(&tree, "g", false);
    r = wb_compact_log(tree.store, &how, tree_object(&tree, "f"), WB_FILE_UNDO);
    if (r >= 0)
        r = wb_store_sync_listed(tree.store);
    if (r < 0)
        return r;
    op_write(&tree, "f", 3, "again");
    leave_store();
    return 0;
}

static int check_entry(const struct wb_manifest_entry *entry, void *data)
{
    ck_assert_msg(wb_manifest_check(tree.store, entry->object, entry->file) == 0,
                  "%s: the log of %" PRIu64 " is listed up to %" PRIu64, ((const struct disk_end *)data)->at,
                  entry->object.ino, entry->end);
    return 0;
}

static int count_log(void *data, int fd, const char *name)
{
    struct wb_manifest_entry entry;
    struct wb_object object;
    enum wb_object_file file;
    struct stat st;

    /* One without a record need not be listed. */
    if (wb_object_file_parse(name, &object, &file) < 0 || (file != WB_FILE_UNDO && file != WB_FILE_CATALOG) ||
        fstatat(fd, name, &st, 0) < 0 || st.st_size == 0)
        return 0;
    ck_assert_msg(wb_manifest_find(tree.store, object, file, &entry) == 1, "%s: %s is not listed",
                  ((const struct disk_end *)data)->at, name);
    return 0;
}

static void check_listed(const struct disk_end *end)
{
    struct wb_error why;

    ck_assert_int_eq(wb_store_open(&tree.store, tree.fd, NULL, 0, &why), 0);
    for (unsigned shard = 0; shard < WB_SHARDS; shard++)
        ck_assert_int_eq(wb_manifest_each(tree.store, shard, check_entry, (void *)end), 0);
    leave_store();
    enter_store();
    wb_manifest_logs_complete(tree.store, WB_MANIFEST_BUDGET);
    leave_store();
    ck_assert_int_eq(wb_store_open(&tree.store, tree.fd, NULL, 0, &why), 0);
    for (unsigned shard = 0; shard < WB_SHARDS; shard++)
        ck_assert_int_eq(wb_shard_each(tree.store->dir_fd, shard, count_log, (void *)end), 0);
    leave_store();
}

/* ---- the trial ---------------------------------------------------------------------------------------------- */

#define ALL_WAYS (DISK_KILLS | DISK_FAILURES | DISK_CUTS)

static const struct job jobs[] = {
    {"inflight", NULL, NULL, use_slots, check_slots, ALL_WAYS},
    /* Changes of the tree in it cannot fail. */
    {"spans", end_opening, change_by_others, record_and_look, check_spans, DISK_KILLS | DISK_CUTS},
    {"spans after a kill", end_opening, kill_a_writer, record_and_look, check_spans, DISK_KILLS | DISK_CUTS},
    {"spans after a cut", end_opening, cut_off_a_writer, record_and_look, check_spans, DISK_KILLS | DISK_CUTS},
    {"stages.lost", write_spans, NULL, change_lost, check_lost, ALL_WAYS},
    {"new stages.lost", NULL, NULL, change_lost, check_lost, ALL_WAYS},
    {"manifest", NULL, NULL, list_logs, check_listed, DISK_KILLS | DISK_CUTS},
};

static const char *prepare(void)
{
    memset(done, 0, sizeof(*done));
    ctime_of_killed = 0;
    begun = wb_ctime_clock();
    tree_open(&tree);
    op_make(&tree, "f", "some text, which is longer");
    op_make(&tree, "g", "a second file");
    remember();
    op_write(&tree, "f", 5, "TEXT");
    remember();
    if (job()->before)
        job()->before();
    settle_store();
    if (job()->between)
        job()->between();
    return tree.path;
}

static int act(void)
{
    return job()->run();
}

static void check(const struct disk_end *end)
{
    if (disk_is_cut(end))
        another_boot();
    job()->check(end);
    /* Others changed a file. */
    if (job()->run == record_and_look)
        return;
    enter_store();
    check_states(end, 0, may_refuse(end));
    check_sound(end);
}

START_TEST(an_end_anywhere_leaves_tables)
{
    struct disk_trial trial = {.name = jobs[_i].name, .ways = jobs[_i].ways, .prepare = prepare, .act = act,
                               .check = check, .clean = clean_tree, .stride = 3, .data = &jobs[_i]};
    unsigned runs;

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
    return disk_run("inflight_ends", an_end_anywhere_leaves_tables, G_N_ELEMENTS(jobs), name_of);
}
