/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "service/busy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define SHOWN 4

static void holder_free(void *data)
{
    struct wb_holder *holder = data;

    g_free(holder->command);
    g_free(holder->use);
    g_free(holder);
}

/* The path if the link of /proc leads into the mount; g_free, NULL if it does not. */
static char *path_in_mount(const char *link, dev_t device)
{
    struct stat st;

    if (stat(link, &st) < 0 || st.st_dev != device)
        return NULL;
    return g_file_read_link(link, NULL);
}

static char *open_file(const char *proc, dev_t device)
{
    g_autofree char *path = g_build_filename(proc, "fd", NULL);
    g_autoptr(GDir) directory = g_dir_open(path, 0, NULL);
    const char *name;

    while (directory && (name = g_dir_read_name(directory))) {
        g_autofree char *link = g_build_filename(path, name, NULL);
        char *found = path_in_mount(link, device);

        if (found)
            return found;
    }
    return NULL;
}

/* A line of maps: "7f..-7f.. r--p 00000000 00:2b 12  /path". */
static char *mapped_file(const char *proc, dev_t device)
{
    g_autofree char *path = g_build_filename(proc, "maps", NULL), *text = NULL;
    g_auto(GStrv) lines = NULL;

    if (!g_file_get_contents(path, &text, NULL, NULL))
        return NULL;
    lines = g_strsplit(text, "\n", -1);
    for (char **line = lines; *line; line++) {
        const char *slash = strchr(*line, '/');
        unsigned major, minor;

        if (slash && sscanf(*line, "%*s %*s %*s %x:%x", &major, &minor) == 2 && makedev(major, minor) == device)
            return g_strdup(slash);
    }
    return NULL;
}

static char *use_of(const char *proc, dev_t device)
{
    static const char *const links[] = {"cwd", "exe", "root"};
    static const char *const words[] = {"stands in", "runs", "has as its root directory"};
    g_autofree char *path = NULL;

    for (unsigned i = 0; i < G_N_ELEMENTS(links); i++) {
        g_autofree char *link = g_build_filename(proc, links[i], NULL);
        g_autofree char *found = path_in_mount(link, device);

        if (found)
            return g_strdup_printf("%s %s", words[i], found);
    }
    path = open_file(proc, device);
    if (!path)
        path = mapped_file(proc, device);
    return path ? g_strdup_printf("has %s open", path) : NULL;
}

static struct wb_holder *look(const char *name, dev_t device)
{
    g_autofree char *proc = g_build_filename("/proc", name, NULL), *comm = g_build_filename(proc, "comm", NULL);
    g_autofree char *use = use_of(proc, device);
    struct wb_holder *holder;

    if (!use)
        return NULL;
    holder = g_new0(struct wb_holder, 1);
    holder->pid = (pid_t)g_ascii_strtoll(name, NULL, 10);
    holder->use = g_steal_pointer(&use);
    if (g_file_get_contents(comm, &holder->command, NULL, NULL))
        g_strchomp(holder->command);
    else
        holder->command = g_strdup("process");
    return holder;
}

GPtrArray *wb_busy_find(const char *mountpoint, pid_t daemon)
{
    GPtrArray *found = g_ptr_array_new_with_free_func(holder_free);
    g_autoptr(GDir) directory = g_dir_open("/proc", 0, NULL);
    const char *name;
    struct stat st;

    if (stat(mountpoint, &st) < 0)
        return found;
    while (directory && (name = g_dir_read_name(directory))) {
        pid_t pid = g_ascii_isdigit(*name) ? (pid_t)g_ascii_strtoll(name, NULL, 10) : 0;
        struct wb_holder *holder = pid > 0 && pid != getpid() && pid != daemon ? look(name, st.st_dev) : NULL;

        if (holder)
            g_ptr_array_add(found, holder);
    }
    return found;
}

char *wb_busy_print(const GPtrArray *holders)
{
    GString *text = g_string_new(NULL);

    for (guint i = 0; i < holders->len && i < SHOWN; i++) {
        const struct wb_holder *holder = holders->pdata[i];

        g_string_append_printf(text, "%s%s %d (%s)", i > 0 ? ", " : "", holder->command, (int)holder->pid, holder->use);
    }
    if (holders->len > SHOWN)
        g_string_append_printf(text, " and %u more", holders->len - SHOWN);
    return g_string_free(text, FALSE);
}
