<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Dovelane: two sites, one mailbox</title>
<style>
    body { margin: 0; font: 15px/1.4 sans-serif; height: 100vh; display: flex; flex-direction: column; }
    p { margin: 0.6em 1em; }
    main { flex: 1; display: flex; }
    section { flex: 1; display: flex; flex-direction: column; border-left: 1px solid #999; }
    h2 { margin: 0.2em 1em; font-size: 15px; }
    iframe { flex: 1; border: 0; border-top: 1px solid #999; }
</style>
<p>One user, two Dovecot servers, each with a storage of its own. Log in at both as anybody, say
<b>bob</b>, with any password. Flag a mail on one side, and see it on the other.</p>
<main>
<?php
$ports = ['site-a, Debian 13, Dovecot 2.4, sdbox' => getenv('SITE_A_PORT'),
          'site-b, Debian 12, Dovecot 2.3, Maildir' => getenv('SITE_B_PORT')];
$host = preg_replace('/:\d+$/', '', $_SERVER['HTTP_HOST']);
foreach ($ports as $name => $port) {
    $address = htmlspecialchars("http://$host:$port/");
    echo "<section><h2>$name: <a href=\"$address\" target=\"_blank\">$address</a></h2>",
        "<iframe src=\"$address\" title=\"$name\"></iframe></section>\n";
}
?>
</main>
</html>
