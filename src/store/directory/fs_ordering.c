/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "store/parts.h"

#include <glib.h>
#include <linux/magic.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#define XFS_MAGIC 0x58465342

/* ext4 can be without a journal; if it has one, its kernel thread exists. */
static bool has_journal(dev_t device)
{
    g_autofree char *link = g_strdup_printf("/sys/dev/block/%u:%u", major(device), minor(device));
    g_autofree char *target = g_file_read_link(link, NULL);
    g_autofree char *name = target ? g_path_get_basename(target) : NULL;
    g_autofree char *path = name ? g_strdup_printf("/sys/fs/ext4/%s/journal_task", name) : NULL;

    return path && access(path, F_OK) == 0;
}

/* File systems that were noted. */
static struct {
    dev_t device;
    bool has_journal;
} noted[WB_ORDERED_NOTES_MAX];
static unsigned noted_count;

static bool has_journal_noted(dev_t device)
{
    for (unsigned i = 0; i < noted_count; i++)
        if (noted[i].device == device)
            return noted[i].has_journal;
    return has_journal(device);
}

void wb_store_dir_note_ordered(int dir_fd)
{
    struct stat st;

    if (noted_count == WB_ORDERED_NOTES_MAX || fstat(dir_fd, &st) < 0)
        return;
    noted[noted_count].has_journal = has_journal_noted(st.st_dev);
    noted[noted_count++].device = st.st_dev;
}

bool wb_store_dir_is_ordered(int dir_fd, bool *ret_truncate_writes)
{
    struct statfs fs;
    struct stat st;

    if (fstatfs(dir_fd, &fs) < 0 || fstat(dir_fd, &st) < 0)
        return false;
    *ret_truncate_writes = fs.f_type == XFS_MAGIC;
    return fs.f_type == XFS_MAGIC || (fs.f_type == EXT4_SUPER_MAGIC && has_journal_noted(st.st_dev));
}
