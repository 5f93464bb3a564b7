/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A store that a released version wrote (tests/assets/stores) is opened for writing for the first time and closed,
 * and that ends at any of its system calls: by a kill, a failure or a power cut. Each state that the store had
 * is as before, and none is refused: neither by a process that only reads, nor by the next writer, which completes the
 * work. Skipped where images of file systems cannot be mounted.
 */
#include "disk_states.h"
#include "store/cache/manifest_logs.h"
#include "store/inflight/inflight_parts.h"
#include <sched.h>
#include <sys/mount.h>

#define NEWEST WB_FORMAT_VERSION

static unsigned version;
static char place[200];

static bool run_command(const char *format, ...)
{
    g_autofree char *command = NULL;
    va_list list;

    va_start(list, format);
    command = g_strdup_vprintf(format, list);
    va_end(list);
    return system(command) == 0;
}

/* The image in `place`, as it was written. */
static bool mount_image(void)
{
    return run_command("rm -f '%s/image' && cp '%s/pristine' '%s/image' && mount -o loop '%s/image' '%s/top' 2>/dev/null",
                       place, place, place, place, place);
}

static void unmount_image(void)
{
    g_autofree char *root = g_strdup_printf("%s/top", place);

    ck_assert_int_eq(umount2(root, MNT_DETACH), 0);
}

static void enter_tree(void)
{
    memset(&tree, 0, sizeof(tree));
    g_snprintf(tree.path, sizeof(tree.path), "%s/top/src", place);
    tree.fd = open(tree.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck_assert_int_ge(tree.fd, 0);
    tree.dirs = g_ptr_array_new_with_free_func(g_free);
    tree.strings = g_ptr_array_new_with_free_func(g_free);
}

static void leave_tree(void)
{
    leave_store();
    close(tree.fd);
    g_ptr_array_unref(tree.dirs);
    g_ptr_array_unref(tree.strings);
}

static unsigned version_here(void)
{
    uint32_t data[3] = {0};
    int fd = openat(tree.fd, WB_STORE_NAME "/" WB_HEADER_NAME, O_RDONLY | O_CLOEXEC);

    ck_assert_int_eq(wb_pread_exact(fd, data, sizeof(data), 0), 0);
    close(fd);
    return le32toh(data[2]);
}

/* The states at the moments of which the sample's makers noted the state. */
static void read_states(void)
{
    g_autofree char *path = g_strdup_printf(ASSETS "/version-%u.json", version), *text = NULL;
    struct wb_error why = {""};

    ck_assert(g_file_get_contents(path, &text, NULL, NULL));
    enter_tree();
    ck_assert_uint_eq(version_here(), version);
    ck_assert_msg(wb_store_open(&tree.store, tree.fd, NULL, 0, &why) == 0, "%s", why.text);
    states = g_array_new(FALSE, FALSE, sizeof(struct state));
    g_array_set_clear_func(states, clear_state);
    for (const char *at = text; (at = strstr(at, "\"when\": "));) {
        struct state state;

        at += strlen("\"when\": ");
        state.when = g_ascii_strtoll(at, NULL, 10);
        state.text = state_at(state.when);
        g_array_append_val(states, state);
    }
    ck_assert_uint_gt(states->len, 3);
    leave_tree();
}

static const char *prepare(void)
{
    ck_assert(mount_image());
    enter_tree();
    return tree.path;
}

static int act(void)
{
    struct wb_error why;
    int r = wb_store_open(&tree.store, tree.fd, NULL, WB_STORE_WRITE, &why);

    if (r == 0)
        r = wb_recover(tree.store, NULL);
    if (r < 0)
        return r;
    wb_manifest_logs_complete(tree.store, WB_MANIFEST_BUDGET);
    r = wb_store_sync_listed(tree.store);
    leave_store();
    return r;
}

/* Older stores do not know of power cuts: the first writer notes the boot. */
static void boot_again(void)
{
    struct stat st;

    if (fstatat(tree.fd, WB_STORE_NAME "/" WB_INFLIGHT_NAME, &st, 0) == 0 &&
        st.st_size == sizeof(struct wb_inflight_file))
        another_boot();
}

static void check(const struct disk_end *end)
{
    struct wb_error why = {""};

    if (disk_is_cut(end))
        boot_again();
    ck_assert_msg(wb_store_open(&tree.store, tree.fd, NULL, 0, &why) == 0, "%s: %s", end->at, why.text);
    check_states(end, 0, false);
    leave_store();
    enter_store();
    check_states(end, 0, false);
    leave_store();
    ck_assert_msg(version_here() == NEWEST, "%s: version %u", end->at, version_here());
    enter_store();
    op_make(&tree, "added-later", "a file");
    op_write(&tree, "added-later", 0, "A");
    check_states(end, 0, false);
    check_sound(end);
}

static void clean(void)
{
    leave_tree();
    unmount_image();
}

START_TEST(an_end_anywhere_leaves_every_state)
{
    struct disk_trial trial = {.name = "open for writing", .ways = DISK_KILLS | DISK_CUTS, .prepare = prepare,
                               .act = act, .check = check, .clean = clean, .dense_stride = 6, .stride = 13};
    const char *base = g_getenv("WAYBACK_TEST_DIR");
    unsigned runs;

    version = (unsigned)_i + 1;
    g_snprintf(place, sizeof(place), "%s/wayback-older-XXXXXX", base ? base : "/var/tmp");
    ck_assert_ptr_nonnull(mkdtemp(place));
    ck_assert(run_command("xz -dc '" ASSETS "/version-%u.img.xz' > '%s/pristine' && mkdir '%s/top'", version, place,
                          place));
    /* Nothing remains mounted if the test fails. */
    if (unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 && mount_image()) {
        read_states();
        unmount_image();
        runs = disk_each_stop(&trial);
        ck_assert_uint_ge(runs, (unsigned)amount(3, 1));
        printf("version %u: %u runs, %u exact, %u refused\n", version, runs, states_exact, states_refused);
        g_clear_pointer(&states, g_array_unref);
    } else {
        printf("skipped: an image cannot be mounted here\n");
    }
    nftw(place, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}
END_TEST

static const char *name_of(int i)
{
    static char name[32];

    g_snprintf(name, sizeof(name), "version %d", i + 1);
    return g_intern_string(name);
}

int main(void)
{
    return disk_run("older_ends", an_end_anywhere_leaves_every_state, NEWEST, name_of);
}
