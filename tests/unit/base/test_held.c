/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "base/held.h"

#include "base/cleanup.h"
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <glib.h>
#include <glib/gstdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define USER 4001

static char dir_path[] = "/tmp/wb-held-XXXXXX";
static int dir_fd;

static void make_dir(void)
{
    memcpy(dir_path + sizeof(dir_path) - 7, "XXXXXX", 6);
    ck_assert_ptr_nonnull(mkdtemp(dir_path));
    ck_assert_int_eq(chdir(dir_path), 0);
    ck_assert_int_eq(chmod(".", 0755), 0);
    dir_fd = open(".", O_RDONLY | O_DIRECTORY);
    ck_assert_int_ge(dir_fd, 0);
}

static void remove_dir(void)
{
    g_autofree char *command = g_strdup_printf("rm -rf '%s'", dir_path);

    close(dir_fd);
    ck_assert_int_eq(chdir("/"), 0);
    ck_assert_int_eq(g_spawn_command_line_sync(command, NULL, NULL, NULL, NULL), 1);
}

static void make_file(const char *name, mode_t mode)
{
    ck_assert(g_file_set_contents(name, "content", 7, NULL));
    ck_assert_int_eq(chmod(name, mode), 0);
}

static struct stat look(const char *name)
{
    struct stat st;

    ck_assert_int_eq(fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW), 0);
    return st;
}

/* ---- paths of an object ---------------------------------------------------------------------- */

static int (*const openers[])(int, const char *, int) = {wb_open_beneath, wb_open_beneath_by_steps, wb_open_in_mount,
                                                         wb_open_in_mount_by_steps};

START_TEST(both_paths_lead_to_the_same)
{
    static const struct {
        const char *path;
        int flags, expected; /* -errno, or 0 */
    } cases[] = {
        {"", O_PATH, 0},
        {".", O_RDONLY, 0},
        {"a/b/f", O_RDONLY, 0},
        {"a//b/./f", O_RDONLY, 0},
        {"a/b", O_PATH | O_DIRECTORY, 0},
        {"a/b/f/", O_RDONLY, -ENOTDIR},
        {"a/b/f/g", O_RDONLY, -ENOTDIR},
        {"a/none/f", O_RDONLY, -ENOENT},
        {"a/b/f", O_PATH | O_DIRECTORY, -ENOTDIR},
        {"/etc", O_PATH, -EXDEV},
        {"..", O_PATH, -EXDEV},
        {"to_a/b/f", O_RDONLY, -ELOOP},
        {"a/to_b/f", O_RDONLY, -ELOOP},
        {"a/to_b", O_PATH | O_DIRECTORY, -ELOOP},
        {"a/b/to_f", O_RDONLY, -ELOOP},
        {"a/b/to_f", O_PATH, -ELOOP},
        {"a/b/to_f", O_PATH | O_NOFOLLOW, 0},
        {"out/passwd", O_RDONLY, -ELOOP},
    };

    ck_assert_int_eq(g_mkdir_with_parents("a/b", 0755), 0);
    make_file("a/b/f", 0644);
    ck_assert_int_eq(symlink("a", "to_a"), 0);
    ck_assert_int_eq(symlink("b", "a/to_b"), 0);
    ck_assert_int_eq(symlink("f", "a/b/to_f"), 0);
    ck_assert_int_eq(symlink("/etc", "out"), 0);
    for (unsigned way = 0; way < G_N_ELEMENTS(openers); way++)
        for (unsigned i = 0; i < G_N_ELEMENTS(cases); i++) {
            int fd = openers[way](dir_fd, cases[i].path, cases[i].flags);

            ck_assert_msg(cases[i].expected ? fd == cases[i].expected : fd >= 0, "way %u, %s: %d", way, cases[i].path,
                          fd);
            if (fd >= 0)
                close(fd);
        }
}
END_TEST

START_TEST(another_mount_is_not_entered)
{
    _cleanup_close_ int root = open("/", O_PATH | O_DIRECTORY);

    ck_assert_int_ge(root, 0);
    for (unsigned way = 0; way < G_N_ELEMENTS(openers); way++) {
        bool stays = openers[way] == wb_open_in_mount || openers[way] == wb_open_in_mount_by_steps;
        int itself = openers[way](root, "proc", O_PATH), below = openers[way](root, "proc/sys", O_PATH);

        ck_assert_msg(stays ? itself == -EXDEV && below == -EXDEV : itself >= 0 && below >= 0, "way %u: %d, %d", way,
                      itself, below);
        wb_close_fd(&itself);
        wb_close_fd(&below);
    }
}
END_TEST

START_TEST(a_named_directory_is_found_by_links_of_root_and_of_the_caller_alone)
{
    g_autofree char *absolute = g_strconcat(dir_path, "/a/b", NULL);
    struct stat there, found;
    static const char *const good[] = {"a/b", "own/b", "a/../own/./b//", "chain/b", "absolute"};
    int fd;

    ck_assert_int_eq(g_mkdir_with_parents("a/b", 0755), 0);
    make_file("a/f", 0644);
    ck_assert_int_eq(symlink("a", "own"), 0);
    ck_assert_int_eq(symlink("a/../own", "chain"), 0);
    ck_assert_int_eq(symlink(absolute, "absolute"), 0);
    ck_assert_int_eq(symlink("loop", "loop"), 0);
    there = look("a/b");
    for (unsigned i = 0; i < G_N_ELEMENTS(good); i++) {
        fd = wb_open_named_dir(good[i]);
        ck_assert_msg(fd >= 0, "%s: %d", good[i], fd);
        ck_assert_int_eq(fstat(fd, &found), 0);
        ck_assert_uint_eq(found.st_ino, there.st_ino);
        close(fd);
    }
    ck_assert_int_eq(wb_open_named_dir("loop"), -ELOOP);
    ck_assert_int_eq(wb_open_named_dir("own/none"), -ENOENT);
    ck_assert_int_eq(wb_open_named_dir("own/f"), -ENOTDIR);
    if (geteuid() == 0) {
        ck_assert_int_eq(symlink("a", "foreign"), 0);
        ck_assert_int_eq(lchown("foreign", USER, USER), 0);
        ck_assert_int_eq(wb_open_named_dir("foreign/b"), -ELOOP);
        ck_assert_int_eq(wb_open_named_dir("foreign"), -ELOOP);
    }
}
END_TEST

/* ---- the object ------------------------------------------------------------------------------ */

START_TEST(an_open_object_is_linked_and_renamed_whatever_its_name_leads_to)
{
    struct stat st;
    int held;

    make_file("f", 0644);
    make_file("other", 0600);
    st = look("f");
    held = wb_hold(dir_fd, "f", &st);
    ck_assert_int_ge(held, 0);
    ck_assert_int_eq(rename("f", "away"), 0);
    ck_assert_int_eq(symlink("other", "f"), 0);
    ck_assert_int_eq(wb_hold(dir_fd, "f", &st), -ESTALE);
    ck_assert_int_eq(wb_held_link(held, dir_fd, "linked"), 0);
    ck_assert_uint_eq(look("linked").st_ino, st.st_ino);
    ck_assert_int_eq(wb_held_rename(held, dir_fd, "f", dir_fd, "g", 0), -ESTALE);
    ck_assert_int_eq(wb_held_rename(held, dir_fd, "away", dir_fd, "g", RENAME_NOREPLACE), -EEXIST);
    ck_assert_int_eq(wb_held_rename(held, dir_fd, "away", dir_fd, "g", 0), 0);
    close(held);
}
END_TEST

/* In a directory of one's own, in one where others may rename, and in a sticky one. */
START_TEST(all_types_are_made)
{
    static const struct {
        mode_t type, mode;
    } types[] = {{S_IFREG, 0600}, {S_IFDIR, 0700}, {S_IFLNK, 0777}, {S_IFIFO, 0600}};
    static const mode_t modes[] = {0755, 0777, 01777};

    for (unsigned m = 0; m < G_N_ELEMENTS(modes); m++) {
        g_autofree char *dir = g_strdup_printf("%o", modes[m]);
        int place;

        ck_assert_int_eq(mkdir(dir, 0700), 0);
        ck_assert_int_eq(chmod(dir, modes[m]), 0);
        place = open(dir, O_RDONLY | O_DIRECTORY);
        for (unsigned i = 0; i < G_N_ELEMENTS(types); i++) {
            struct stat held, named;
            int fd = wb_held_make(place, "new", types[i].type, 0, "target");

            ck_assert_int_ge(fd, 0);
            ck_assert_int_eq(fstat(fd, &held), 0);
            ck_assert_int_eq(fstatat(place, "new", &named, AT_SYMLINK_NOFOLLOW), 0);
            ck_assert_uint_eq(held.st_ino, named.st_ino);
            ck_assert_uint_eq(named.st_mode, types[i].type | types[i].mode);
            ck_assert_int_eq(wb_held_make(place, "new", types[i].type, 0, "target"), -EEXIST);
            ck_assert_int_eq(unlinkat(place, "new", S_ISDIR(types[i].type) ? AT_REMOVEDIR : 0), 0);
            close(fd);
        }
        close(place);
        /* Nothing is left in it. */
        ck_assert_int_eq(rmdir(dir), 0);
    }
}
END_TEST

/* ---- attributes ------------------------------------------------------------------------------ */

static int refuse_owner(void *data, const char *what, const char *xattr, int error)
{
    (void)xattr;
    *(const char **)data = what;
    return strcmp(what, "the owner") == 0 || strcmp(what, "the set-id bits") == 0 ? 0 : error;
}

START_TEST(set_id_bits_come_with_their_owner_only)
{
    struct wb_held_attrs want = {.mode = S_IFREG | 06755, .uid = geteuid(), .gid = getegid()};
    const char *what = NULL;
    struct wb_held_setting setting = {.failed = refuse_owner, .data = &what};
    int held;

    make_file("f", 0600);
    held = wb_hold(dir_fd, "f", NULL);
    ck_assert_int_eq(wb_held_set(held, &want, &setting), 1);
    ck_assert_uint_eq(look("f").st_mode, S_IFREG | 06755);
    ck_assert_int_eq(wb_held_set(held, &want, &setting), 0);
    /* No file system has this owner. */
    want.uid = (uid_t)-2;
    if (geteuid() == 0) {
        ck_assert_int_eq(seteuid(USER), 0);
        ck_assert_int_lt(wb_held_set(held, &want, &setting), 0);
        ck_assert_int_eq(seteuid(0), 0);
    }
    close(held);
    want = (struct wb_held_attrs){.mode = S_IFREG | 06755, .uid = USER, .gid = USER};
    if (geteuid() != 0)
        return;
    make_file("g", 0600);
    held = wb_hold(dir_fd, "g", NULL);
    ck_assert_int_eq(chown("g", USER + 1, USER + 1), 0);
    ck_assert_int_eq(seteuid(USER + 1), 0);
    ck_assert_int_eq(wb_held_set(held, &want, &setting), 1);
    ck_assert_str_eq(what, "the owner");
    ck_assert_uint_eq(look("g").st_mode, S_IFREG | 0755);
    /* A file that another user sends does not run with the receiver's rights. */
    setting.flags = WB_HELD_FOREIGN;
    want.uid = want.gid = USER + 1;
    ck_assert_int_eq(wb_held_set(held, &want, &setting), 0);
    ck_assert_str_eq(what, "the set-id bits");
    ck_assert_uint_eq(look("g").st_mode, S_IFREG | 0755);
    ck_assert_int_eq(seteuid(0), 0);
    setting.flags = WB_HELD_FOREIGN;
    ck_assert_int_eq(wb_held_set(held, &want, &setting), 1);
    ck_assert_uint_eq(look("g").st_mode, S_IFREG | 06755);
    close(held);
}
END_TEST

START_TEST(a_file_is_disarmed_before_its_content_comes)
{
    int fd;

    make_file("f", 06775);
    fd = open("f", O_RDWR);
    ck_assert_int_eq(wb_held_disarm(fd, 0640), 0);
    ck_assert_uint_eq(look("f").st_mode, S_IFREG | 0640);
    ck_assert_int_eq(wb_held_disarm(fd, 06777), 0);
    ck_assert_uint_eq(look("f").st_mode, S_IFREG | 0640);
    close(fd);
}
END_TEST

START_TEST(programs_with_power_are_known)
{
    static const struct wb_held_xattr xattrs[] = {{"user.a", "1", 1}, {"security.capability", "x", 1}};
    struct wb_held_attrs attrs = {.mode = S_IFREG | 0777, .has_xattrs = true, .xattrs = xattrs, .xattr_count = 1};

    ck_assert(!wb_held_has_power(&attrs));
    attrs.xattr_count = 2;
    ck_assert(wb_held_has_power(&attrs));
    attrs.xattr_count = 0;
    attrs.mode = S_IFREG | S_ISGID | 0755;
    ck_assert(wb_held_has_power(&attrs));
    attrs.mode = S_IFREG | S_ISUID | 0755;
    ck_assert(wb_held_has_power(&attrs));
    attrs.mode = S_IFDIR | S_ISGID | 0755;
    ck_assert(!wb_held_has_power(&attrs));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("held");
    TCase *tests = tcase_create("held");
    SRunner *runner;
    int failed;

    tcase_add_checked_fixture(tests, make_dir, remove_dir);
    tcase_add_test(tests, both_paths_lead_to_the_same);
    tcase_add_test(tests, another_mount_is_not_entered);
    tcase_add_test(tests, a_named_directory_is_found_by_links_of_root_and_of_the_caller_alone);
    tcase_add_test(tests, an_open_object_is_linked_and_renamed_whatever_its_name_leads_to);
    tcase_add_test(tests, all_types_are_made);
    tcase_add_test(tests, set_id_bits_come_with_their_owner_only);
    tcase_add_test(tests, a_file_is_disarmed_before_its_content_comes);
    tcase_add_test(tests, programs_with_power_are_known);
    suite_add_tcase(suite, tests);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}
