<?php
// Roundcube at one site: SITE says which. Anybody of example.org may log in, with any password.
$site = getenv('SITE');
$config['product_name'] = "Dovelane, $site";
$config['imap_host'] = "$site:143";
$config['smtp_host'] = 'postfix:25';
$config['smtp_user'] = '';
$config['smtp_pass'] = '';
$config['username_domain'] = 'example.org';
$config['db_dsnw'] = "sqlite:////var/lib/webmail/$site.db?mode=0640";
$config['des_key'] = getenv('SESSION_KEY');
// Browsers keep cookies by host, not by port: two sites at one host need two names.
$config['session_name'] = "roundcube_$site";
$config['session_auth_name'] = "roundcube_auth_$site";
// docker/pages shows both in one page.
$config['x_frame_options'] = false;
// What the other site did is asked for every two seconds.
$config['refresh_interval'] = 2;
$config['min_refresh_interval'] = 1;
$config['log_driver'] = 'stdout';
$config['temp_dir'] = '/tmp';
$config['enable_spellcheck'] = false;
$config['plugins'] = [];
