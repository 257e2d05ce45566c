//! The object_store crate.

use std::error::Error;
use std::path::Path as File;

use fencepost_client::{Client, Guard};
use fencepost_harness::bucketed::{Bucketed, Credentials, tree};
use futures_util::{StreamExt, TryStreamExt};
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::{
    Attribute, GetOptions, ObjectStore as _, ObjectStoreExt as _, PutMode, PutOptions, PutPayload, WriteMultipart,
};
use tokio::runtime::{Builder, Runtime};

use crate::client::{Described, S3Client, Said, parts};

/// `object_store`, in this process.
pub(crate) struct ObjectStore {
    endpoint: String,
    credentials: Credentials,
    runtime: Runtime,
}

type Outcome<T> = Result<T, object_store::Error>;

impl ObjectStore {
    /// The store of a bucket.
    pub(crate) fn bucket(&self, bucket: &str) -> AmazonS3 {
        AmazonS3Builder::new()
            .with_endpoint(&self.endpoint)
            .with_allow_http(true)
            .with_bucket_name(bucket)
            .with_access_key_id(&self.credentials.access_key_id)
            .with_secret_access_key(&self.credentials.secret_access_key)
            .build()
            .unwrap()
    }

    /// Runs a function with the bucket and the key of an object.
    fn with<T>(&self, object: &str, act: impl AsyncFnOnce(AmazonS3, Path) -> Outcome<T>) -> Outcome<T> {
        let (bucket, key) = parts(object);
        let (store, key) = (self.bucket(bucket), Path::parse(key).unwrap());
        self.runtime.block_on(act(store, key))
    }

    pub(crate) fn runtime(&self) -> &Runtime {
        &self.runtime
    }
}

/// The output of a program that prints an error and its causes.
fn said<T>(outcome: Outcome<T>) -> Said {
    match outcome {
        Ok(_) => Said { ok: true, out: String::new(), err: String::new() },
        Err(error) => {
            let mut err = error.to_string();
            let mut cause = error.source();
            while let Some(inner) = cause {
                err.push_str(&format!(": {inner}"));
                cause = inner.source();
            }
            Said { ok: false, out: String::new(), err }
        }
    }
}

fn content(file: &File) -> PutPayload {
    std::fs::read(file).unwrap().into()
}

impl S3Client for ObjectStore {
    fn new(endpoint: &str, credentials: &Credentials) -> ObjectStore {
        // Nothing here is encrypted, but reqwest requires a provider. Another test may have installed one already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        ObjectStore { endpoint: endpoint.to_owned(), credentials: credentials.clone(), runtime }
    }

    fn put(&self, file: &File, object: &str) -> Said {
        said(self.with(object, async |store, key| store.put(&key, content(file)).await))
    }

    fn put_in_parts(&self, file: &File, object: &str) -> Said {
        said(self.with(object, async |store, key| {
            let upload = store.put_multipart(&key).await?;
            let mut upload = WriteMultipart::new_with_chunk_size(upload, 5 << 20);
            upload.write(&std::fs::read(file).unwrap());
            upload.finish().await
        }))
    }

    fn put_described(&self, file: &File, object: &str, content_type: &str, (name, value): (&str, &str)) -> Said {
        let mut options = PutOptions::default();
        options.attributes.insert(Attribute::ContentType, content_type.to_owned().into());
        options.attributes.insert(Attribute::Metadata(name.to_owned().into()), value.to_owned().into());
        said(self.with(object, async |store, key| store.put_opts(&key, content(file), options).await))
    }

    fn get(&self, object: &str, file: &File) -> Said {
        said(self.with(object, async |store, key| {
            let bytes = store.get(&key).await?.bytes().await?;
            std::fs::write(file, bytes).unwrap();
            Ok(())
        }))
    }

    fn describe(&self, object: &str) -> Result<Described, Said> {
        let head = GetOptions { head: true, ..GetOptions::default() };
        let found = self.with(object, async |store, key| store.get_opts(&key, head).await);
        let found = found.map_err(|error| said::<()>(Err(error)))?;
        let metadata = found.attributes.iter().filter_map(|(attribute, value)| match attribute {
            Attribute::Metadata(name) => Some((name.to_string(), value.to_string())),
            _ => None,
        });
        let content_type = found.attributes.get(&Attribute::ContentType).map(|value| value.as_ref().to_owned());
        Ok(Described {
            size: found.meta.size,
            content_type: content_type.unwrap_or_default(),
            metadata: metadata.collect(),
        })
    }

    fn copy(&self, from: &str, to: &str) -> Said {
        let source = Path::parse(parts(from).1).unwrap();
        said(self.with(to, async |store, key| store.copy(&source, &key).await))
    }

    fn delete(&self, object: &str) -> Said {
        said(self.with(object, async |store, key| store.delete(&key).await))
    }

    fn delete_many(&self, folder: &str, names: &[&str]) -> Said {
        let names: Vec<Outcome<Path>> =
            names.iter().map(|name| Ok(Path::parse(parts(&format!("{folder}/{name}")).1).unwrap())).collect();
        said(self.with(folder, async |store, _| {
            let deleted = store.delete_stream(futures_util::stream::iter(names).boxed());
            deleted.try_collect::<Vec<_>>().await
        }))
    }

    fn list(&self, folder: &str) -> Result<Vec<String>, Said> {
        let found = self.with(folder, async |store, prefix| store.list(Some(&prefix)).try_collect::<Vec<_>>().await);
        let found = found.map_err(|error| said::<()>(Err(error)))?;
        let start = format!("{}/", parts(folder).1);
        let name = |key: &str| key.strip_prefix(start.trim_start_matches('/')).unwrap().to_owned();
        let mut names: Vec<String> = found.iter().map(|object| name(object.location.as_ref())).collect();
        names.sort();
        Ok(names)
    }

    fn look(&self, folder: &str) -> Result<Vec<String>, Said> {
        let found = self.with(folder, async |store, prefix| store.list_with_delimiter(Some(&prefix)).await);
        let found = found.map_err(|error| said::<()>(Err(error)))?;
        let last = |path: &Path| path.filename().unwrap().to_owned();
        let folders = found.common_prefixes.iter().map(|path| format!("{}/", last(path)));
        let mut names: Vec<String> = found.objects.iter().map(|object| last(&object.location)).chain(folders).collect();
        names.sort();
        Ok(names)
    }

    fn upload_tree(&self, directory: &File, folder: &str) -> Said {
        for name in tree(directory).keys() {
            let put = self.put(&directory.join(name), &format!("{folder}/{name}"));
            if !put.ok {
                return put;
            }
        }
        said(Ok(()))
    }

    fn download_tree(&self, folder: &str, directory: &File) -> Said {
        let names = match self.list(folder) {
            Ok(names) => names,
            Err(said) => return said,
        };
        for name in names {
            let file = directory.join(&name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            let got = self.get(&format!("{folder}/{name}"), &file);
            if !got.ok {
                return got;
            }
        }
        said(Ok(()))
    }
}

/// Compare-and-swap by ETag is the client's own condition, and is answered as such: never confused with the fence.
#[test]
fn conditional_puts_are_conditions_and_not_fences() {
    let gateway = Bucketed::start();
    let endpoint = format!("http://{}", gateway.s3());
    let client = ObjectStore::new(&endpoint, &gateway.credentials("reports", "33"));
    let (store, key) = (client.bucket("reports"), Path::from("state"));
    let put = |text: &'static str, mode: PutMode| {
        client.runtime().block_on(store.put_opts(&key, text.into(), PutOptions { mode, ..PutOptions::default() }))
    };
    let first = put("first", PutMode::Create).unwrap();
    let again = put("again", PutMode::Create);
    assert!(matches!(again, Err(object_store::Error::AlreadyExists { .. })), "{again:?}");
    let second = put("second", PutMode::Update(first.clone().into())).unwrap();
    let late = put("late", PutMode::Update(first.into()));
    assert!(matches!(late, Err(object_store::Error::Precondition { .. })), "{late:?}");
    assert_eq!(gateway.files()["reports/state"], b"second");

    gateway.credentials("reports", "34");
    let stale = put("stale", PutMode::Update(second.into()));
    assert!(matches!(stale, Err(object_store::Error::PermissionDenied { .. })), "{stale:?}");
    said(stale).expect_failure("a stale conditional put", &["StaleFencingToken"]);
    assert_eq!(gateway.files()["reports/state"], b"second");
}

/// The code of docs/s3.md; `documented` checks that both are the same.
async fn as_documented(guard: &Guard) -> Result<String, Box<dyn Error>> {
    let issued = guard.s3_credentials(None).await?;
    let store = AmazonS3Builder::new()
        .with_endpoint(&issued.endpoint)
        .with_allow_http(true)
        .with_bucket_name("reports")
        .with_access_key_id(&issued.access_key_id)
        .with_secret_access_key(&issued.secret_access_key)
        .build()?;
    match store.put(&Path::from("2026/report.csv"), "day,total\n".into()).await {
        Err(object_store::Error::PermissionDenied { source, .. }) => {
            return Ok(format!("no longer the holder: {source}"));
        }
        other => drop(other?),
    }
    Ok("written".to_owned())
}

#[test]
fn under_a_lock_of_the_client() {
    let gateway = Bucketed::start();
    let endpoint = format!("http://{}", gateway.s3());
    let client = ObjectStore::new(&endpoint, &Credentials::reader());
    client.runtime().block_on(async {
        let lock = format!("fencepost://{}", gateway.address());
        let locks = Client::builder().gateway_url(gateway.url()).lock_service_url(&lock).connect().await.unwrap();
        let guard = locks.acquire("reports").await.unwrap();
        assert_eq!(as_documented(&guard).await.unwrap(), "written");
        assert_eq!(gateway.files()["reports/2026/report.csv"], b"day,total\n");
        guard.release().await.unwrap();
    });
}

crate::suite!(super::ObjectStore);
